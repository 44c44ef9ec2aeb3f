//! Builds the seek indexes of a whole source before the first epoch.
//!
//! In: a source, a cache folder. Out: an index for each picture that had none, where later runs over the same source find it.
//! Several threads read files; each takes the next sample.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use feedline_codec::SeekIndex;
use feedline_data::batch::Kind;
use feedline_data::memory::NoMemory;
use feedline_data::private_files::CacheFolder;
use feedline_data::source::{Source, stamp};
use feedline_data::store::StoreError;
use feedline_order::{Ordinal, SampleId};
use serde::Serialize;

use super::seek::{IndexLookup, SeekIndexes};
use crate::metrics::SeekMeter;

/// Interval between two calls of the progress function.
const REPORT_EVERY: Duration = Duration::from_millis(50);

/// Counts of an indexing run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Indexed {
    /// Pictures examined.
    pub pictures: u64,
    /// Indexes made.
    pub made: u64,
    /// Pictures that already had an index.
    pub known: u64,
    /// Pictures that cannot have an index, because they are not baseline JPEG.
    pub not_seekable: u64,
    /// Files that could not be read.
    pub unreadable: u64,
    /// Total bytes of the files that were walked.
    pub walked_bytes: u64,
    /// Total bytes of the new indexes.
    pub index_bytes: u64,
    /// Whether all new indexes could be saved.
    pub is_kept: bool,
}

#[derive(Default)]
struct IndexingCounts {
    known: AtomicU64,
    unreadable: AtomicU64,
    walked_bytes: AtomicU64,
    next: AtomicU64,
    meter: SeekMeter,
}

/// Builds the missing indexes. `report` is called with the number of finished samples and returns whether to continue.
pub fn index_source(
    source: &dyn Source,
    cache_folder: &CacheFolder,
    workers: usize,
    mut report: impl FnMut(u64) -> bool,
) -> Indexed {
    let fields = source.fields();
    let names = fields.iter().filter(|(_, kind)| **kind == Kind::Bytes).map(|(name, _)| name);
    let indexes: Vec<(&str, SeekIndexes)> =
        names.map(|name| (&**name, SeekIndexes::new(source, name, Some(cache_folder)))).collect();
    let counts = IndexingCounts::default();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let work = || {
            while !stop.load(Ordering::Relaxed) && indexes.iter().all(|(_, indexes)| indexes.can_keep()) {
                let ordinal = counts.next.fetch_add(1, Ordering::Relaxed);
                if ordinal >= source.len() {
                    return;
                }
                for (field, indexes) in &indexes {
                    if index_picture(source, source.id_at(Ordinal(ordinal)), field, indexes, &counts).is_err() {
                        counts.unreadable.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        // Progress is reported from this thread, so the caller's function needs no lock.
        while threads.iter().any(|thread| !thread.is_finished()) {
            if !report(counts.next.load(Ordering::Relaxed).min(source.len())) {
                stop.store(true, Ordering::Relaxed);
            }
            thread::park_timeout(REPORT_EVERY);
        }
    });
    // The scope has joined all threads, so the counters are final.
    let made = counts.meter.read();
    let (known, unreadable) = (counts.known.into_inner(), counts.unreadable.into_inner());
    Indexed {
        pictures: made.made + made.not_seekable + known + unreadable,
        made: made.made,
        known,
        not_seekable: made.not_seekable,
        unreadable,
        walked_bytes: counts.walked_bytes.into_inner(),
        index_bytes: made.made_bytes,
        is_kept: indexes.iter().all(|(_, indexes)| indexes.can_keep()),
    }
}

fn index_picture(
    source: &dyn Source,
    id: SampleId,
    field: &str,
    indexes: &SeekIndexes,
    counts: &IndexingCounts,
) -> Result<(), StoreError> {
    let Some((object, range)) = source.origin(id, field).open()? else { return Ok(()) };
    let stamp = stamp(&*object, &range);
    // A file that cannot have an index also has a record, so it is not walked again.
    if !matches!(indexes.find(source, id, stamp)?, IndexLookup::Unknown) {
        counts.known.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    // Only the first bytes are read of a file that cannot have an index, such as an array.
    let mut len = range.end.saturating_sub(range.start);
    let mut first = [0; 3];
    object.read_at(range.start, &mut first[..len.min(3) as usize])?;
    if !SeekIndex::may_have(&first, len) {
        len = len.min(3);
    }
    let mut file = Vec::new();
    let no_memory = |_| NoMemory::Exhausted { bytes: len };
    file.try_reserve_exact(len as usize).map_err(no_memory)?;
    file.resize(len as usize, 0);
    object.read_at(range.start, &mut file)?;
    counts.walked_bytes.fetch_add(file.len() as u64, Ordering::Relaxed);
    if indexes.has_room() {
        let start = Instant::now();
        let built = SeekIndex::build(&file);
        indexes.keep(id, stamp, built.as_ref().map_err(|reason| *reason), start.elapsed(), &counts.meter);
    }
    Ok(())
}
