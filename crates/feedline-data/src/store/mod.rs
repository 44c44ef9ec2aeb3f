//! Stores: byte ranges of named objects.
//!
//! In: a name below a root, a range. Out: bytes, or an error that says what disagrees. Nothing here knows what the bytes
//! mean. A store reads and never maps: a file that another process cuts short is an error, not a crash (law 6).

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
pub use peer::{Asked, Peer, Prepared, ServerCost, Trial};
pub use prefix::Prefix;
pub use remote::{Answer, Done, Fetch, Remote, Traffic, answer_unasked, fetch_waiting, read_ranges, read_waiting};
pub use slow_disk::{DiskSpeed, SlowDisk, SlowStore};
pub use walk::{MOST_DEPTH, WALK_THREADS, WalkFolder, walk};

use serde::{Deserialize, Serialize};

use crate::memory::NoMemory;
use crate::spec::SpecError;

/// A place that holds named objects.
pub trait Store: Send + Sync + Debug {
    /// Names of all objects below the root that `accept` takes, sorted by bytes.
    ///
    /// `accept` also hears of each folder in the root, as `name/`, also of those without objects where the store knows them.
    /// Its answer is ignored there.
    fn list(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError>;

    /// Names of the objects that lie in the root itself, not in folders of it, and that `accept` takes, sorted by bytes.
    fn list_flat(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError> {
        self.list(&|name| !name.contains('/') && accept(name))
    }

    /// Reads a whole object into memory that `room` gives once the length is known.
    fn read(&self, name: &str, room: &mut dyn BufferSource) -> Result<(), StoreError>;

    /// Opens an object that will be read in parts, many times.
    fn open(&self, name: &str) -> Result<Arc<dyn Object>, StoreError>;

    /// The full path or address of an object, for messages.
    fn address(&self, name: &str) -> String;

    /// The length and time of an object, where the store can say so without opening it.
    fn version(&self, _name: &str) -> Option<Version> {
        None
    }

    /// Whether objects are with a peer: then they are opened once, and what is small and often looked at is copied here.
    fn is_remote(&self) -> bool {
        false
    }

    /// The machine near the objects that can prepare samples made of them, where there is one.
    fn peer(&self) -> Option<Arc<dyn Peer>> {
        None
    }

    /// Whether to open an object costs next to nothing, so that all may be opened to find out something small.
    fn is_near(&self) -> bool {
        !self.is_remote()
    }
}

/// By what an object is known to be the same as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Bytes in it.
    pub len: u64,
    /// When it was changed last, in nanoseconds since 1970, where the store tells.
    pub modified_nanoseconds: Option<i64>,
}

impl Version {
    /// What is different from another version, for messages.
    pub fn difference_to(self, other: Self) -> String {
        let told = |version: Self| format!("{} bytes of {:?}", version.len, version.modified_nanoseconds);
        format!("{}, not {}", told(self), told(other))
    }
}

/// An open object.
pub trait Object: Send + Sync + Debug {
    /// Bytes in it when it was opened.
    fn len(&self) -> u64;

    /// Its full path or address, for messages.
    fn address(&self) -> String;

    /// When it was last changed before it was opened, in nanoseconds since 1970, where the store tells.
    fn modified_nanoseconds(&self) -> Option<i64> {
        None
    }

    /// Whether it was empty when it was opened.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `target` from `offset` on.
    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), StoreError>;

    /// Whether its bytes are in memory already, so that there is nothing to read before they are needed.
    fn is_in_memory(&self) -> bool {
        false
    }

    /// The way to fetch many ranges at once, where the bytes are with a peer.
    fn remote(&self) -> Option<&dyn Remote> {
        None
    }
}

/// Memory that a reader asks for when it knows how much it needs.
pub trait BufferSource {
    /// Exactly `len` bytes to be filled.
    fn room(&mut self, len: usize) -> Result<&mut [u8], NoMemory>;
}

impl BufferSource for Vec<u8> {
    fn room(&mut self, len: usize) -> Result<&mut [u8], NoMemory> {
        self.clear();
        self.try_reserve_exact(len).map_err(|_| NoMemory::Exhausted { bytes: len as u64 })?;
        self.resize(len, 0);
        Ok(self)
    }
}

/// Why bytes could not be had.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum StoreError {
    #[error("no such file or folder: {path:?}")]
    NotFound { path: String, source: std::io::Error },
    #[error("cannot read {path:?}")]
    Read { path: String, source: std::io::Error },
    #[error("{path:?} ends at byte {len}, but bytes {range:?} were asked for; it was cut short after it was opened")]
    Truncated { path: String, range: Range<u64>, len: u64 },
    #[error("{path:?} is more than {limit} folders deep: a symbolic link that leads back?")]
    TooDeep { path: String, limit: usize },
    #[error("{path:?} is not a file that can be read, but {what}")]
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
    #[error(transparent)]
    Earlier(#[from] Arc<StoreError>),
}

/// Opens a store by its URL.
pub type OpenStore = Box<dyn Fn(&str) -> Result<Arc<dyn Store>, StoreError> + Send + Sync>;

/// The stores of this crate, by URL scheme.
pub(crate) fn stores() -> [(&'static str, OpenStore); 2] {
    let disk = |url: &str| -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(DiskStore::below(url.strip_prefix("file://").unwrap_or(url))?))
    };
    [("file", Box::new(disk)), slow_disk::store()]
}
