//! Stores: byte ranges of named objects.
//!
//! In: a name below a root, and a range. Out: bytes, or an error with the numbers that disagree. Nothing here knows what the bytes
//! mean. A store reads files and never maps them: a file that another process truncates is an error, not a crash (law 6).

mod disk;
mod escaped;
mod form;
mod names;
mod packing;
mod peer;
mod prefix;
mod remote;
mod slow_disk;
mod walk;

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

pub use disk::{DiskStore, FileObject};
pub use escaped::{escaped, escaped_path, unescaped};
pub use form::{Form, Packing};
pub use names::{Names, NamesBuilder};
pub use packing::UnpackError;
pub use peer::{Peer, PeerRequest, Prepared, ServerCost, Trial};
pub use prefix::Prefix;
pub use remote::{Answer, Done, Fetch, Remote, Traffic, answer_unasked, fetch_waiting, read_ranges, read_waiting};
pub use slow_disk::{DiskSpeed, SlowDisk, SlowStore};
pub use walk::{MAX_DEPTH, WALK_THREADS, WalkFolder, walk};

use serde::{Deserialize, Serialize};

use crate::memory::NoMemory;
use crate::spec::SpecError;

/// Holds named objects.
pub trait Store: Send + Sync + Debug {
    /// The names of all objects below the root that `accept` takes, sorted by bytes.
    ///
    /// `accept` is also called for each folder in the root, as `name/`, including empty ones if the store knows them. There its
    /// result is ignored.
    fn list(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError>;

    /// The names of the objects directly in the root that `accept` takes, sorted by bytes.
    fn list_flat(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError> {
        self.list(&|name| !name.contains('/') && accept(name))
    }

    /// Reads a whole object into memory from `room`, which is called once the length is known.
    fn read(&self, name: &str, room: &mut dyn BufferSource) -> Result<(), StoreError>;

    /// Opens an object that will be read in parts, many times.
    fn open(&self, name: &str) -> Result<Arc<dyn Object>, StoreError>;

    /// The full path or address of an object, for messages.
    fn address(&self, name: &str) -> String;

    /// The length and time of an object, if the store knows them without opening it.
    fn version(&self, _name: &str) -> Option<Version> {
        None
    }

    /// Whether objects are fetched from a peer. Then they are opened once, and small data that is needed often is kept in memory.
    fn is_remote(&self) -> bool {
        false
    }

    /// The machine near the objects that can prepare samples, if there is one.
    fn peer(&self) -> Option<Arc<dyn Peer>> {
        None
    }

    /// Whether opening an object is cheap enough to open every object of a source, for example to look up its size.
    fn is_near(&self) -> bool {
        !self.is_remote()
    }
}

/// Shows whether an object has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Its length in bytes.
    pub len: u64,
    /// When it was last changed, in nanoseconds since 1970, if the store knows.
    pub modified_nanoseconds: Option<i64>,
}

impl Version {
    /// Describes how it differs from another version, for messages.
    pub fn difference_to(self, other: Self) -> String {
        let describe = |version: Self| match version.modified_nanoseconds {
            Some(time) => format!("{} bytes, modified {time} ns after 1970", version.len),
            None => format!("{} bytes", version.len),
        };
        format!("{}, not {}", describe(self), describe(other))
    }
}

/// An open object.
pub trait Object: Send + Sync + Debug {
    /// Its length in bytes when it was opened.
    fn len(&self) -> u64;

    /// Its full path or URL, for messages.
    fn address(&self) -> String;

    /// When it was last changed before it was opened, in nanoseconds since 1970, if the store knows.
    fn modified_nanoseconds(&self) -> Option<i64> {
        None
    }

    /// Whether it was empty when it was opened.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `target` from `offset` on.
    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), StoreError>;

    /// Asks the operating system to read a range ahead, into its page cache. Returns whether the range was not there yet. Objects
    /// that are no local files do nothing.
    fn will_need(&self, _range: Range<u64>) -> bool {
        false
    }

    /// Whether its bytes are already in memory, so that reading ahead is pointless.
    fn is_in_memory(&self) -> bool {
        false
    }

    /// The interface to fetch many ranges at once, if the bytes are with a peer.
    fn remote(&self) -> Option<&dyn Remote> {
        None
    }
}

/// Provides memory once a reader knows the length.
pub trait BufferSource {
    /// Exactly `len` bytes to be filled.
    fn room(&mut self, len: usize) -> Result<&mut [u8], NoMemory>;
}

impl BufferSource for Vec<u8> {
    fn room(&mut self, len: usize) -> Result<&mut [u8], NoMemory> {
        self.clear();
        // A refused allocation is an error. `resize` alone would abort the process.
        self.try_reserve_exact(len).map_err(|_| NoMemory::Exhausted { bytes: len as u64 })?;
        self.resize(len, 0);
        Ok(self)
    }
}

/// Why bytes could not be read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum StoreError {
    #[error("no such file or folder: {path:?}")]
    NotFound { path: String, source: std::io::Error },
    #[error("cannot read {path:?}")]
    Read { path: String, source: std::io::Error },
    #[error(
        "{path:?} ends at byte {len}, but bytes {range:?} were requested; it may have been truncated after it was opened"
    )]
    Truncated { path: String, range: Range<u64>, len: u64 },
    #[error("{path:?} is more than {limit} folders deep; a symbolic link may lead back to a parent")]
    TooDeep { path: String, limit: usize },
    #[error("{path:?} is {what}, not a file")]
    NotAFile { path: String, what: &'static str },
    #[error("{path:?} {problem}")]
    Content { path: String, problem: String },
    #[error("{path:?} {problem}")]
    Peer { path: String, problem: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{0}")]
    Address(String),
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Memory(#[from] NoMemory),
    // One failed fetch may serve several samples, which share its error.
    #[error(transparent)]
    Earlier(#[from] Arc<StoreError>),
}

/// Opens a store by its URL.
pub type OpenStore = Box<dyn Fn(&str) -> Result<Arc<dyn Store>, StoreError> + Send + Sync>;

/// The stores of this crate by URL scheme.
pub(crate) fn stores() -> [(&'static str, OpenStore); 2] {
    let disk = |url: &str| -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(DiskStore::below(url.strip_prefix("file://").unwrap_or(url))?))
    };
    [("file", Box::new(disk)), slow_disk::store()]
}
