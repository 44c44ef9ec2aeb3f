//! Finds the seek indexes of a source's pictures, and saves new ones.
//!
//! In: a sample, and a stamp of its stored bytes. Out: its index, if it has one. Indexes next to the data come first, where
//! `feedline pack` writes them; then the cache folder. If the cache folder cannot be written, new indexes are kept in memory, up to
//! a limit. Without a cache folder none are kept.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_codec::{NotSeekable, SeekIndex};
use feedline_data::batch::IndexKeeper;
use feedline_data::memory::NoMemory;
use feedline_data::private_files::CacheFolder;
use feedline_data::source::Source;
use feedline_data::store::StoreError;
use feedline_order::{Ordinal, SampleId};
use xxhash_rust::xxh3::Xxh3;

use crate::cache::{MemoryShelf, Shelf};
use crate::metrics::SeekMeter;

/// The indexes of the pictures of one field.
#[derive(Debug)]
pub(super) struct SeekIndexes {
    field: String,
    shelf: Option<Shelf>,
    memory: MemoryShelf,
}

/// Upper limit of memory for the indexes of one field, if they cannot be saved.
const MAX_MEMORY_BYTES: u64 = 64 << 20;
/// A longer record counts as damaged.
const MAX_INDEX_BYTES: usize = 64 << 20;

/// The result of a lookup.
#[derive(Debug)]
pub(super) enum IndexLookup {
    /// The index.
    Index(SeekIndex),
    /// The file cannot have one: it is not a baseline JPEG.
    NotSeekable,
    /// The file has not been examined yet.
    Unknown,
}

impl SeekIndexes {
    /// The indexes of a field of `source`, below `cache_folder`.
    pub(super) fn new(source: &dyn Source, field: &str, cache_folder: Option<&CacheFolder>) -> Self {
        let below = || Path::new("seek").join(shelf_name(source, field));
        let shelf = cache_folder.map(|folder| Shelf::new(folder.clone(), below(), None));
        let memory = MemoryShelf::default();
        memory.widen(MAX_MEMORY_BYTES);
        Self { field: field.to_owned(), shelf, memory }
    }

    /// Whether indexes can be saved for later runs, as far as known.
    pub(crate) fn can_keep(&self) -> bool {
        self.shelf.as_ref().is_some_and(Shelf::takes_records)
    }

    /// Finds an index. `stamp` is that of the picture's stored bytes.
    pub(super) fn find(&self, source: &dyn Source, id: SampleId, stamp: u64) -> Result<IndexLookup, StoreError> {
        let mut record = Vec::new();
        if source.seek_record(id, &self.field, &mut record)?
            && let Ok(index) = SeekIndex::from_bytes(&record)
        {
            return Ok(IndexLookup::Index(index));
        }
        if let Some(kept) = self.memory.get(id.0, stamp) {
            return Ok(read(&kept));
        }
        let check_len = |bytes: usize| {
            let memory = MAX_INDEX_BYTES as u64;
            if bytes > MAX_INDEX_BYTES { Err(NoMemory::TooLarge { bytes: bytes as u64, memory }) } else { Ok(()) }
        };
        let is_kept =
            self.shelf.as_ref().is_some_and(|shelf| shelf.get(id.0, stamp, &mut record, check_len) == Ok(true));
        Ok(if is_kept { read(&record) } else { IndexLookup::Unknown })
    }

    /// Whether a new index could be saved. If not, none is built: it does not pay for a single crop.
    pub(super) fn has_room(&self) -> bool {
        self.shelf.as_ref().is_some_and(|shelf| shelf.takes_records() || !self.memory.is_full())
    }

    /// Saves an index. `busy` is the time that building it took.
    pub(super) fn keep(
        &self,
        id: SampleId,
        stamp: u64,
        built: Result<&SeekIndex, NotSeekable>,
        busy: Duration,
        meter: &SeekMeter,
    ) {
        let start = Instant::now();
        // An empty record says that the file cannot have an index, so it is not examined again.
        let bytes = built.map(SeekIndex::to_bytes).unwrap_or_default();
        let is_on_shelf = self.shelf.as_ref().is_some_and(|shelf| shelf.put(id.0, stamp, &bytes));
        let len = bytes.len();
        if is_on_shelf || self.memory.put(id.0, stamp, Arc::new(bytes)) {
            meter.add_made((busy + start.elapsed()).max(Duration::from_nanos(1)), built.is_ok(), len);
        }
    }
}

/// Saves the index of one picture.
#[derive(Debug)]
pub(super) struct Keeper {
    pub indexes: Arc<SeekIndexes>,
    pub meter: Arc<SeekMeter>,
    pub id: SampleId,
    /// The stamp of the picture's stored bytes.
    pub stamp: u64,
}

impl IndexKeeper for Keeper {
    fn keep(&self, built: Result<&SeekIndex, NotSeekable>) {
        self.indexes.keep(self.id, self.stamp, built, Duration::ZERO, &self.meter);
    }
}

/// Decodes a record. An empty record means that the file cannot have an index.
fn read(record: &[u8]) -> IndexLookup {
    match SeekIndex::from_bytes(record) {
        Ok(index) => IndexLookup::Index(index),
        Err(_) if record.is_empty() => IndexLookup::NotSeekable,
        Err(_) => IndexLookup::Unknown,
    }
}

/// The name of a field of a source: its samples, and where they are stored.
pub(super) fn shelf_name(mut source: &dyn Source, field: &str) -> String {
    // Subsets and splits share the indexes of the source that they are part of.
    while let Some(parent) = source.parent() {
        source = parent;
    }
    let mut hasher = Xxh3::new();
    hasher.update(&source.identity().to_le_bytes());
    let first = (!source.is_empty()).then(|| source.id_at(Ordinal(0))).and_then(|id| source.address(id));
    hasher.update(first.map(|(address, _)| address).unwrap_or_default().as_bytes());
    hasher.update(field.as_bytes());
    format!("{:032x}", hasher.digest128())
}
