//! An open object of a peer. Ranges are fetched; a read blocks until its range is here.

use std::fmt::Debug;
use std::ops::Range;

use feedline_data::memory::Cancel;
use feedline_data::store::{Done, Fetch, Object, Remote, StoreError, Version, answer_unasked, read_waiting};

/// An object in its version at the time of opening.
#[derive(Debug)]
pub(crate) struct RemoteObject<R> {
    pub opened: Opened,
    pub ranges: R,
}

/// The address and the version of an object.
#[derive(Debug)]
pub(crate) struct Opened {
    pub address: String,
    pub version: Version,
}

/// Fetches ranges of an object.
pub(crate) trait Ranges: Debug + Send + Sync {
    /// Starts to fetch a range, which is not empty and lies inside the object.
    fn begin(&self, opened: &Opened, range: Range<u64>, done: Done) -> Fetch;
}

impl<R: Ranges> Object for RemoteObject<R> {
    fn len(&self) -> u64 {
        self.opened.version.len
    }

    fn address(&self) -> String {
        self.opened.address.clone()
    }

    fn modified_nanoseconds(&self) -> Option<i64> {
        self.opened.version.modified_nanoseconds
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), StoreError> {
        read_waiting(self, offset, target, &Cancel::default(), |_| ())
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }
}

impl<R: Ranges> Remote for RemoteObject<R> {
    fn fetch(&self, range: Range<u64>, done: Done) -> Fetch {
        match answer_unasked(self, &range) {
            // Empty ranges, and ranges outside of the object, need no request.
            Some(answer) => Fetch::answered(done, answer),
            None => self.ranges.begin(&self.opened, range, done),
        }
    }
}
