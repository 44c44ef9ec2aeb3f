//! An open object of a peer, whatever the peer is: it is fetched by ranges, and a read waits for its range.

use std::fmt::Debug;
use std::ops::Range;

use feedline_data::memory::Cancel;
use feedline_data::store::{Done, Fetch, Object, Remote, StoreError, Version, answer_unasked, read_waiting};

/// An object as it was when it was opened.
#[derive(Debug)]
pub(crate) struct RemoteObject<R> {
    pub opened: Opened,
    pub ranges: R,
}

/// How an object is called, and what it was when it was opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub address: String,
    pub version: Version,
}

/// The way to the bytes of an object.
pub(crate) trait Ranges: Debug + Send + Sync {
    /// Begins to fetch a range, which lies in the object and has bytes.
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
            Some(answer) => Fetch::answered(done, answer),
            None => self.ranges.begin(&self.opened, range, done),
        }
    }
}
