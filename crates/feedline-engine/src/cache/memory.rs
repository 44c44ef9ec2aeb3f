//! Cached samples in memory: for all runs of one loader, or for all runs of a process with the same first ops.
//!
//! Always true: a record stays until it is replaced, and the total stays below the limit.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use feedline_data::cut::Cut;
use feedline_data::plan::Fingerprint;
use feedline_memory::RwLock;

use crate::shared_by_key::SharedByKey;

/// Memory of a record besides its bytes.
const RECORD_OVERHEAD: u64 = 96;

/// A cached sample.
#[derive(Debug)]
struct Record {
    /// The stamp of the files it was made from.
    stamp: u64,
    bytes: Arc<Vec<u8>>,
}

/// Records by sample.
#[derive(Debug, Default)]
pub(crate) struct MemoryShelf {
    records: RwLock<HashMap<u64, Record>>,
    bytes: AtomicU64,
    limit: AtomicU64,
    is_full: AtomicBool,
}

impl MemoryShelf {
    /// Raises the limit to at least `limit` bytes.
    pub(crate) fn widen(&self, limit: u64) {
        // Relaxed throughout: the counters guard no data. The records have their own lock.
        if self.limit.fetch_max(limit, Ordering::Relaxed) < limit {
            self.is_full.store(false, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    pub(crate) fn has(&self, id: u64) -> bool {
        self.records.read().contains_key(&id)
    }

    /// The record of a sample, if its stamp matches.
    pub(crate) fn get(&self, id: u64, stamp: u64) -> Option<Arc<Vec<u8>>> {
        let records = self.records.read();
        records.get(&id).filter(|record| record.stamp == stamp).map(|record| Arc::clone(&record.bytes))
    }

    /// Stores a record if it fits. Returns whether it is new.
    pub(crate) fn put(&self, id: u64, stamp: u64, record: Arc<Vec<u8>>) -> bool {
        let taken = |record: &[u8]| record.len() as u64 + RECORD_OVERHEAD;
        let bytes = taken(&record);
        let limit = self.limit.load(Ordering::Relaxed);
        // Reserve first, then check: two threads that add at once cannot both pass the limit.
        let booked = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let mut records = self.records.write();
        let is_known = records.get(&id).is_some_and(|known| known.stamp == stamp);
        if booked <= limit && !is_known {
            // A record with an older stamp is replaced.
            if let Some(old) = records.insert(id, Record { stamp, bytes: record }) {
                self.bytes.fetch_sub(taken(&old.bytes), Ordering::Relaxed);
            }
            return true;
        }
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        // From the first record that does not fit, none is stored, not even a smaller one. Preparing a sample for the cache costs
        // more than loading it.
        self.is_full.fetch_or(booked > limit, Ordering::Relaxed);
        false
    }
}

/// The memory caches of a process, by source and first ops. Runs with the same key share one.
#[derive(Debug, Default)]
pub struct Memories(SharedByKey<MemoryShelf>);

impl Memories {
    /// The cache for a key. It lives as long as a run uses it.
    pub(crate) fn shelf(&self, Fingerprint(prefix): Fingerprint) -> Arc<MemoryShelf> {
        let Ok(shelf) = self.0.get(prefix, || Ok::<_, Infallible>(MemoryShelf::default()));
        shelf
    }
}

/// A memory cache that outlives its run, for a run that follows it with the same source and ops.
#[derive(Debug, Default)]
pub struct KeptCache {
    /// The cut at which samples are cached, once it is known.
    pub(crate) cut: OnceLock<Cut>,
    shelf: OnceLock<(Fingerprint, Arc<MemoryShelf>)>,
}

impl KeptCache {
    /// The records of samples with a prefix. Runs with another prefix have none in common.
    pub(crate) fn shelf(&self, prefix: Fingerprint) -> Arc<MemoryShelf> {
        let (kept, shelf) = self.shelf.get_or_init(|| (prefix, Arc::default()));
        if *kept == prefix { Arc::clone(shelf) } else { Arc::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(len: usize) -> Arc<Vec<u8>> {
        Arc::new(vec![7; len])
    }

    #[test]
    fn what_fits_is_kept_and_what_was_made_from_another_file_is_not_found() {
        let shelf = MemoryShelf::default();
        shelf.widen(3 * (100 + RECORD_OVERHEAD));
        assert!(shelf.put(1, 5, record(100)) && !shelf.put(1, 5, record(100)));
        assert!(shelf.get(1, 5).is_some() && shelf.get(1, 6).is_none() && shelf.get(2, 5).is_none());
        assert!(shelf.put(1, 6, record(100)), "a newer file");
        assert!(shelf.get(1, 5).is_none() && shelf.get(1, 6).is_some());
        assert!(shelf.put(2, 0, record(100)) && !shelf.is_full());
        assert!(!shelf.put(3, 0, record(101)) && shelf.is_full() && !shelf.has(3));
        shelf.widen(1000);
        assert!(shelf.put(3, 0, record(101)));
    }

    #[test]
    fn runs_of_one_kind_have_one_shelf_for_as_long_as_one_of_them_lives() {
        let memories = Memories::default();
        let [first, same, other] = [3, 3, 4].map(|prefix| memories.shelf(Fingerprint(prefix)));
        assert!(Arc::ptr_eq(&first, &same) && !Arc::ptr_eq(&first, &other));
        first.widen(1000);
        first.put(1, 0, record(10));
        drop((first, same));
        assert!(!memories.shelf(Fingerprint(3)).has(1));
    }
}
