//! All shards of a data set: which sample is in which shard, and the few open shards.
//!
//! In: a sample's number. Out: its open shard and its entry. Always true: the number of open shards is bounded, whatever the number
//! of shards.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use feedline_memory::Mutex;
use feedline_order::Block;
use lru::LruCache;
use xxhash_rust::xxh3::xxh3_128;

use super::index::{IndexError, IndexHead};
use super::pattern::FoundShard;
use super::shard::{IndexCache, OpenShard, Opened, Shard};
use crate::store::{Peer, StoreError};

/// Upper limit of open shards, with two files each: the shard and its index. Enough for threads that read at random, and well below
/// the usual limit of 1024 open files.
const OPEN_SHARDS: NonZero<usize> = NonZero::new(128).expect("128 is not zero");
/// Number of threads that open shards. They mostly wait for the file system.
const OPENING_THREADS: usize = 8;
/// The same if a shard is with a peer, which takes longer to answer.
const REMOTE_OPENING_THREADS: usize = 32;

/// The shards of a data set, in order.
#[derive(Debug)]
pub(super) struct Shards {
    all: Vec<Shard>,
    /// The number of the first sample after each shard.
    ends: Vec<u64>,
    cache: Option<IndexCache>,
    /// The shards that are open, by number. The least recently used one is closed first.
    open: Mutex<LruCache<usize, Arc<OpenShard>>>,
}

/// A sample's shard, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub shard: usize,
    pub sample: u64,
}

impl Shards {
    /// Opens all shards for the first time.
    pub(super) fn open(found: &[FoundShard], cache: Option<IndexCache>) -> Result<Self, StoreError> {
        let opened = open_all(found, cache.as_ref())?;
        let with = |what| opened.iter().filter(|(_, opened)| *opened == what).count();
        let (listed, replaced) = (with(Opened::Listed), with(Opened::Replaced));
        if listed > 0 {
            tracing::debug!(shards = listed, "shards without an index were listed");
        }
        if replaced > 0 {
            let first = opened.iter().find(|(_, opened)| *opened == Opened::Replaced).map(|(shard, _)| shard.address());
            tracing::info!(shards = replaced, first, "rebuilt indexes that were stale or damaged");
        }
        let shards: Vec<Shard> = opened.into_iter().map(|(shard, _)| shard).collect();
        let mut ends = Vec::with_capacity(shards.len());
        let mut end = 0_u64;
        for shard in &shards {
            end = end.saturating_add(shard.head().samples);
            ends.push(end);
        }
        Ok(Self { all: shards, ends, cache, open: Mutex::new(LruCache::new(OPEN_SHARDS)) })
    }

    /// Number of samples in all shards.
    pub(super) fn samples(&self) -> u64 {
        self.ends.last().copied().unwrap_or_default()
    }

    /// Number of shards.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether any shard is with a peer.
    pub(super) fn is_remote(&self) -> bool {
        self.all.iter().any(Shard::is_remote)
    }

    /// The samples and bytes of each shard.
    pub(super) fn blocks(&self) -> Vec<Block> {
        self.all.iter().map(|shard| Block { samples: shard.head().samples, bytes: shard.bytes() }).collect()
    }

    /// A hash of the lengths and times of all shards when they were opened.
    pub(super) fn version(&self) -> u128 {
        let versions: Vec<[u8; 16]> = self.all.iter().map(Shard::version).collect();
        xxh3_128(versions.as_flattened())
    }

    /// The machine near all shards. `None` if there is none, or if the shards are in several stores.
    pub(super) fn peer(&self) -> Option<Arc<dyn Peer>> {
        let first = self.all.first()?.store();
        self.all.iter().all(|shard| Arc::ptr_eq(shard.store(), first)).then(|| first.peer())?
    }

    /// The heads of the indexes, in order.
    pub(super) fn heads(&self) -> impl Iterator<Item = Arc<IndexHead>> {
        self.all.iter().map(Shard::head)
    }

    /// The place of a sample. Its number must be below [`Shards::samples`].
    pub(super) fn locate(&self, number: u64) -> Location {
        // The first shard that ends after the sample. Empty shards end where they start and are passed over.
        let shard = self.ends.partition_point(|&end| end <= number);
        let start = if shard == 0 { 0 } else { self.ends[shard - 1] };
        Location { shard, sample: number - start }
    }

    /// The path or address of a shard.
    pub(super) fn address(&self, shard: usize) -> String {
        self.all[shard].address()
    }

    /// Reads from the index of a shard. If the index is damaged, it is built again, once.
    pub(super) fn read<T>(
        &self,
        shard: usize,
        read: impl Fn(&OpenShard) -> Result<T, IndexError>,
    ) -> Result<T, StoreError> {
        if let Ok(value) = read(&*self.open_shard(shard)?) {
            return Ok(value);
        }
        // Any error leads here: the index file may be gone, or its bytes may fail their checksum.
        let rebuilt = Arc::new(self.all[shard].rebuild(self.cache.as_ref())?);
        self.keep_open(shard, &rebuilt);
        read(&rebuilt).map_err(|error| match error {
            IndexError::Store(error) => error,
            IndexError::Damaged => {
                let problem = "has an index that was damaged again right after it was rebuilt".to_owned();
                StoreError::Content { path: self.address(shard), problem }
            }
        })
    }

    fn open_shard(&self, shard: usize) -> Result<Arc<OpenShard>, StoreError> {
        if let Some(open) = self.open.lock().get(&shard) {
            return Ok(Arc::clone(open));
        }
        // The lock is free while files are opened. Two threads may open the same shard; the later one replaces the earlier.
        let open = Arc::new(self.all[shard].reopen(self.cache.as_ref())?);
        self.keep_open(shard, &open);
        Ok(open)
    }

    fn keep_open(&self, shard: usize, open: &Arc<OpenShard>) {
        let pushed_out = self.open.lock().push(shard, Arc::clone(open));
        // Files are closed after the lock is released.
        drop(pushed_out);
    }
}

/// Opens shards in parallel. After an error no further shard is opened. Of several errors, the one with the lowest shard number is
/// returned.
fn open_all(found: &[FoundShard], cache: Option<&IndexCache>) -> Result<Vec<(Shard, Opened)>, StoreError> {
    let (next, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let open_some = || {
        let mut opened = Vec::new();
        loop {
            // Each number is taken by one thread. Relaxed is enough: joining the threads publishes their results.
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(found) = found.get(number).filter(|_| !has_failed.load(Ordering::Relaxed)) else { return opened };
            let shard = Shard::open(found.clone(), cache);
            has_failed.fetch_or(shard.is_err(), Ordering::Relaxed);
            opened.push((number, shard));
        }
    };
    let is_remote = found.iter().any(|found| found.store.is_remote());
    let most = if is_remote { REMOTE_OPENING_THREADS } else { OPENING_THREADS };
    let mut opened = thread::scope(|scope| {
        let threads: Vec<_> = (0..most.min(found.len())).map(|_| scope.spawn(open_some)).collect();
        let parts = threads.into_iter().map(|thread| thread.join().expect("opening a shard does not panic"));
        parts.flatten().collect::<Vec<_>>()
    });
    // Shards that were not opened are missing here, but only after an error, which is then the result.
    opened.sort_unstable_by_key(|(number, _)| *number);
    opened.into_iter().map(|(_, shard)| shard).collect()
}
