//! Seek indexes of a whole source ahead of the first epoch.
//!
//! In: a source, a cache folder. Out: an index for each of its pictures that has none yet, where runs over the same source
//! look for it. Files are read by several threads, each of which takes the next sample.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

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

/// How often the caller is told.
const TELL_EVERY: Duration = Duration::from_millis(50);

/// What was found and made.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Indexed {
    /// Pictures looked at.
    pub pictures: u64,
    /// Indexes made.
    pub made: u64,
    /// Pictures that had one.
    pub known: u64,
    /// Pictures that have none: not baseline JPEG.
    pub not_seekable: u64,
    /// Files that could not be read.
    pub unreadable: u64,
    /// Bytes of the files that were walked.
    pub walked_bytes: u64,
    /// Bytes of the indexes made.
    pub index_bytes: u64,
    /// Whether all that was made could be kept.
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

/// Makes the indexes that are missing. `tell` hears how many samples are done, and says whether to go on.
pub fn index_source(
    source: &dyn Source,
    cache_folder: &CacheFolder,
    workers: usize,
    mut tell: impl FnMut(u64) -> bool,
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
        while threads.iter().any(|thread| !thread.is_finished()) {
            if !tell(counts.next.load(Ordering::Relaxed).min(source.len())) {
                stop.store(true, Ordering::Relaxed);
            }
            thread::park_timeout(TELL_EVERY);
        }
    });
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
    if !matches!(indexes.find(source, id, stamp)?, IndexLookup::Unknown) {
        counts.known.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    // Of what can have no index, such as arrays, only the first bytes are read.
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
    indexes.make(id, stamp, &file, &counts.meter);
    Ok(())
}
