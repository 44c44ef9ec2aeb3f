//! Seek indexes of a whole source ahead of the first epoch.
//!
//! In: a source, a cache folder. Out: an index for each of its pictures that has none yet, where runs over the same source
//! look for it. Files are read by several threads, each of which takes the next sample.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::batch::Kind;
use crate::metrics::SeekMeter;
use crate::order::SampleId;
use crate::source::{Origin, Source};
use crate::store::StoreError;
use crate::supply::{Found, SeekIndexes, stamp};

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
}

#[derive(Default)]
struct Counts {
    known: AtomicU64,
    unreadable: AtomicU64,
    walked_bytes: AtomicU64,
    next: AtomicU64,
    meter: SeekMeter,
}

/// Makes the indexes that are missing. `tell` hears how many samples are done, and says whether to go on.
pub fn index_source(
    source: &dyn Source,
    cache_folder: &Path,
    workers: usize,
    mut tell: impl FnMut(u64) -> bool,
) -> Indexed {
    let fields = source.fields();
    let names = fields.iter().filter(|(_, kind)| **kind == Kind::Bytes).map(|(name, _)| name);
    let indexes: Vec<(&str, SeekIndexes)> =
        names.map(|name| (&**name, SeekIndexes::new(source, name, Some(cache_folder)))).collect();
    let counts = Counts::default();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let work = || {
            while !stop.load(Ordering::Relaxed) {
                let ordinal = counts.next.fetch_add(1, Ordering::Relaxed);
                if ordinal >= source.len() {
                    return;
                }
                for (field, indexes) in &indexes {
                    if index_picture(source, source.id_at(ordinal), field, indexes, &counts).is_err() {
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
    }
}

fn index_picture(
    source: &dyn Source,
    id: SampleId,
    field: &str,
    indexes: &SeekIndexes,
    counts: &Counts,
) -> Result<(), StoreError> {
    let (object, range) = match source.origin(id, field) {
        Origin::Whole { store, name } => {
            let object = store.open(name)?;
            let range = 0..object.len();
            (object, range)
        }
        Origin::Part { object, range } => (object, range),
        Origin::Made => return Ok(()),
    };
    let stamp = stamp(object.len(), object.modified_nanoseconds(), &range);
    if !matches!(indexes.find(source, id, stamp)?, Found::Unknown) {
        counts.known.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    let mut file = vec![0; range.end.saturating_sub(range.start) as usize];
    object.read_at(range.start, &mut file)?;
    counts.walked_bytes.fetch_add(file.len() as u64, Ordering::Relaxed);
    indexes.make(id, stamp, &file, &counts.meter);
    Ok(())
}
