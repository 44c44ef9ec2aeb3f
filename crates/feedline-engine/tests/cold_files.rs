//! Local files that are not in the page cache are read ahead, and only those.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::borrow::Cow;
use std::fs;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use feedline_data::batch::{Batch, FieldTypes, Kind};
use feedline_data::dtype::Dtype;
use feedline_data::plan::{Document, Registry};
use feedline_data::source::{Origin, Source, SourceError};
use feedline_data::store::{Object, StoreError};
use feedline_engine::loader::Loader;
use feedline_engine::machine::Machine;
use feedline_engine::testing::collect;
use feedline_memory::Mutex;
use feedline_order::SampleId;

const SAMPLES: u64 = 300;
const SAMPLE_BYTES: u64 = 1 << 12;

const COLD: u8 = 0;
const ASKED: u8 = 1;
const READ: u8 = 2;

/// Tests look at the threads of the process, so they run one after the other.
static ALONE: Mutex<()> = Mutex::new(());

/// A file on a slow disk, with a page cache of its own.
#[derive(Debug)]
struct SlowFile {
    /// For each sample: cold, asked for, or read.
    states: Vec<AtomicU8>,
    /// Reads that found their bytes in the cache, and reads that waited.
    quick: AtomicU64,
    slow: AtomicU64,
    asked: AtomicU64,
    /// Bytes that were asked for and not read yet, and their maximum.
    ahead: AtomicU64,
    most_ahead: AtomicU64,
}

impl SlowFile {
    fn new(state: u8) -> Arc<Self> {
        let [quick, slow, asked, ahead, most_ahead] = [const { AtomicU64::new(0) }; 5];
        let states = (0..SAMPLES).map(|_| AtomicU8::new(state)).collect();
        Arc::new(Self { states, quick, slow, asked, ahead, most_ahead })
    }
}

impl Object for SlowFile {
    fn len(&self) -> u64 {
        SAMPLES * SAMPLE_BYTES
    }

    fn address(&self) -> String {
        "slow".to_owned()
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), StoreError> {
        let sample = offset / SAMPLE_BYTES;
        match self.states[sample as usize].swap(READ, Ordering::Relaxed) {
            COLD => {
                self.slow.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(2));
            }
            ASKED => {
                self.quick.fetch_add(1, Ordering::Relaxed);
                self.ahead.fetch_sub(target.len() as u64, Ordering::Relaxed);
            }
            // The next epoch is prepared already.
            _ => {}
        }
        target.fill(sample as u8);
        Ok(())
    }

    fn will_need(&self, range: Range<u64>) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let bytes = range.end - range.start;
        let state = &self.states[(range.start / SAMPLE_BYTES) as usize];
        // Before the state changes, because the sample may be read at once.
        let ahead = self.ahead.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let was_cold = state.compare_exchange(COLD, ASKED, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if was_cold {
            self.most_ahead.fetch_max(ahead, Ordering::Relaxed);
        } else {
            self.ahead.fetch_sub(bytes, Ordering::Relaxed);
        }
        was_cold
    }
}

#[derive(Debug)]
struct SlowSource(Arc<SlowFile>);

impl Source for SlowSource {
    fn len(&self) -> u64 {
        SAMPLES
    }

    fn fields(&self) -> FieldTypes {
        let mut types = FieldTypes::new();
        types.set("data", Kind::tensor(Dtype::U8, &[SAMPLE_BYTES as usize]));
        types
    }

    fn origin(&self, id: SampleId, _field: &str) -> Origin<'_> {
        let start = id.0 * SAMPLE_BYTES;
        Origin::Part { object: Arc::clone(&self.0) as Arc<dyn Object>, range: start..start + SAMPLE_BYTES }
    }

    fn key(&self, id: SampleId) -> Cow<'_, str> {
        id.0.to_string().into()
    }

    fn identity(&self) -> u128 {
        7
    }

    fn spec(&self) -> Result<toml::Table, SourceError> {
        Err(SourceError::Unserialisable("a test".to_owned()))
    }

    fn refreshed(&self) -> Result<Arc<dyn Source>, SourceError> {
        Ok(Arc::new(Self(Arc::clone(&self.0))))
    }
}

fn loader(file: &Arc<SlowFile>, run: &str) -> Loader {
    let mut registry = Registry::core();
    let file = Arc::clone(file);
    registry.source("slow", move |_, _| Ok(Arc::new(SlowSource(Arc::clone(&file)))));
    let text = format!("batch_size = 10\nshuffle = true\nseed = 3\n[source]\nkind = \"slow\"\n[run]\n{run}");
    Loader::new(Arc::new(Document::parse(&text).unwrap().open(&registry).unwrap()), &Machine::default())
}

fn cold_threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("feedline-cold")).count()
}

#[test]
fn law_7_cold_files_are_read_ahead_by_threads_that_end_with_the_loader() {
    let _alone = ALONE.lock();
    let file = SlowFile::new(COLD);
    let loader = loader(&file, "num_workers = 1");
    let ids: Vec<i64> = collect(&loader).unwrap().iter().flat_map(Batch::ids).collect();
    assert_eq!(ids.len(), SAMPLES as usize);
    let (quick, slow) = (file.quick.load(Ordering::Relaxed), file.slow.load(Ordering::Relaxed));
    assert_eq!(quick + slow, SAMPLES);
    assert!(quick > SAMPLES / 2, "{slow} reads waited, {quick} did not");
    assert!(cold_threads() > 0);
    drop(loader);
    // A thread counts as ended just before the kernel forgets it.
    let deadline = Instant::now() + Duration::from_mins(1);
    while cold_threads() > 0 {
        assert!(Instant::now() < deadline, "threads are left");
        thread::yield_now();
    }
}

#[test]
fn law_5_the_bytes_that_are_read_ahead_are_bounded() {
    let _alone = ALONE.lock();
    let file = SlowFile::new(COLD);
    // An eighth of the budget may be read ahead, and each of four threads may exceed it by one task, which is at most a batch.
    let loader = loader(&file, "num_workers = 1\nmemory_budget = 1048576");
    collect(&loader).unwrap();
    let most = file.most_ahead.load(Ordering::Relaxed);
    assert!(most > 0 && most <= (1 << 20) / 8 + 4 * 10 * SAMPLE_BYTES, "{most} bytes were read ahead");
}

#[test]
fn files_in_the_page_cache_are_left_alone() {
    let _alone = ALONE.lock();
    let file = SlowFile::new(READ);
    let loader = loader(&file, "num_workers = 2");
    collect(&loader).unwrap();
    assert_eq!(file.slow.load(Ordering::Relaxed), 0);
    // On a busy machine single reads are slow, too, and few files are asked for in vain.
    assert!(file.asked.load(Ordering::Relaxed) < SAMPLES / 4, "{:?}", file.asked);
}
