//! The counters of a run. All are relaxed atomics: people read them, and no decision about data depends on them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_data::batch::Batch;
use feedline_data::failure::SampleFailure;
use feedline_data::plan::Plan;
use feedline_memory::Mutex;

use super::{
    CacheSnapshot, CostMeter, Counter, LoadingMeter, OpMeter, Recorder, SeekSnapshot, StallMeter, ThreadMeter,
    TrafficMeter,
};

/// Number of substitutes that the snapshot lists.
const KEPT_SUBSTITUTES: usize = 1000;

/// From the page cache, a megabyte takes less than this.
const SLOW_READ: Duration = Duration::from_micros(250);

/// Measures reads: time, bytes and number.
#[derive(Debug, Default)]
pub struct ReadMeter {
    busy: Counter,
    bytes: Counter,
    reads: Counter,
    /// Reads that took at least [`SLOW_READ`].
    slow: Counter,
}

impl ReadMeter {
    /// Runs and measures one read.
    pub fn time<T>(&self, read: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = read();
        let taken = start.elapsed();
        self.busy.add_time(taken);
        self.reads.add(1);
        if taken >= SLOW_READ {
            self.slow.add(1);
        }
        result
    }

    /// Number of reads that were so slow that they probably waited for a disk.
    pub(crate) fn slow(&self) -> u64 {
        self.slow.get()
    }

    /// Adds bytes.
    pub(crate) fn add_bytes(&self, bytes: usize) {
        self.bytes.add(bytes as u64);
    }

    /// Busy time, bytes, reads.
    pub fn read(&self) -> (Duration, u64, u64) {
        let busy = self.busy.time();
        (busy, self.bytes.get(), self.reads.get())
    }
}

/// Counts seek indexes that were built and used.
#[derive(Debug, Default)]
pub struct SeekMeter {
    made: Counter,
    not_seekable: Counter,
    busy: Counter,
    bytes: Counter,
    used: Counter,
}

impl SeekMeter {
    /// Adds a new index, or a file that cannot have one. `busy` is the time of building and saving it. If it was built while a crop
    /// was decoded, only the time of saving it.
    pub(crate) fn add_made(&self, busy: Duration, is_seekable: bool, bytes: usize) {
        let counter = if is_seekable { &self.made } else { &self.not_seekable };
        counter.add(1);
        self.busy.add_time(busy);
        self.bytes.add(bytes as u64);
    }

    /// Adds a sample that was read by its index.
    pub(crate) fn add_used(&self) {
        self.used.add(1);
    }

    /// The counters.
    pub fn read(&self) -> SeekSnapshot {
        SeekSnapshot {
            made: self.made.get(),
            not_seekable: self.not_seekable.get(),
            made_bytes: self.bytes.get(),
            busy_seconds: self.busy.seconds(),
            used: self.used.get(),
        }
    }
}

/// Counts accesses to the cache of samples.
#[derive(Debug, Default)]
pub struct CacheMeter {
    hits: Counter,
    misses: Counter,
    memory_bytes: Counter,
    memory_samples: Counter,
    disk_bytes: Counter,
}

impl CacheMeter {
    /// Adds a hit.
    pub(crate) fn add_hit(&self) {
        self.hits.add(1);
    }

    /// Adds a miss.
    pub(crate) fn add_miss(&self) {
        self.misses.add(1);
    }

    /// Adds a record in memory.
    pub(crate) fn add_to_memory(&self, bytes: usize) {
        self.memory_bytes.add(bytes as u64);
        self.memory_samples.add(1);
    }

    /// Adds a record on disk.
    pub(crate) fn add_to_disk(&self, bytes: usize) {
        self.disk_bytes.add(bytes as u64);
    }

    /// The counters.
    pub fn read(&self) -> CacheSnapshot {
        CacheSnapshot {
            hits: self.hits.get(),
            misses: self.misses.get(),
            ram_bytes: self.memory_bytes.get(),
            ram_samples: self.memory_samples.get(),
            written_bytes: self.disk_bytes.get(),
        }
    }
}

/// A bad sample and its substitute.
#[derive(Clone, Debug)]
pub struct Substitute {
    /// The bad sample, and what is wrong with it.
    pub failure: Arc<SampleFailure>,
    /// The name of the substitute.
    pub by: String,
}

/// All counters of a run.
#[derive(Debug)]
pub struct Metrics {
    /// One meter per op of the plan.
    pub ops: Vec<OpMeter>,
    /// The preparer threads.
    pub threads: ThreadMeter,
    /// The loading of samples.
    pub loading: LoadingMeter,
    /// The quality of cost predictions.
    pub costs: CostMeter,
    /// Reads from the store.
    pub read: ReadMeter,
    /// Network traffic of the supply.
    pub traffic: Arc<TrafficMeter>,
    /// Seek indexes.
    pub seek: Arc<SeekMeter>,
    /// The cache of samples.
    pub cache: CacheMeter,
    /// Waiting time of consumers.
    pub stalls: StallMeter,
    /// Records a timeline on demand.
    pub recorder: Recorder,
    pub(crate) samples: Counter,
    pub(crate) batches: Counter,
    pub(crate) content_bytes: Counter,
    substituted: Counter,
    substitutes: Mutex<VecDeque<Substitute>>,
}

impl Metrics {
    /// New counters for the ops of `plan`.
    pub fn new(plan: &Plan) -> Self {
        Self::counting(plan, Arc::default())
    }

    /// New counters, with the traffic meter of a supply.
    pub fn counting(plan: &Plan, traffic: Arc<TrafficMeter>) -> Self {
        Self {
            ops: plan.ops().iter().map(|op| OpMeter::new(op.name())).collect(),
            threads: ThreadMeter::default(),
            loading: LoadingMeter::default(),
            costs: CostMeter::default(),
            read: ReadMeter::default(),
            traffic,
            seek: Arc::default(),
            cache: CacheMeter::default(),
            stalls: StallMeter::default(),
            recorder: Recorder::default(),
            samples: Counter::default(),
            batches: Counter::default(),
            content_bytes: Counter::default(),
            substituted: Counter::default(),
            substitutes: Mutex::default(),
        }
    }

    /// Adds a delivered batch.
    pub fn add_batch(&self, batch: &Batch) {
        self.batches.add(1);
        self.samples.add(batch.len as u64);
        self.content_bytes.add(batch.content_bytes() as u64);
    }

    /// Adds delivered substitutes.
    pub fn add_substitutes(&self, new: &[Substitute]) {
        // The usual case takes no lock, so that it never waits for a snapshot.
        if new.is_empty() {
            return;
        }
        self.substituted.add(new.len() as u64);
        let mut kept = self.substitutes.lock();
        for substitute in new {
            if kept.len() == KEPT_SUBSTITUTES {
                kept.pop_front();
            }
            kept.push_back(substitute.clone());
        }
    }

    /// The number of delivered substitutes, and the latest of them.
    pub fn substitutes(&self) -> (u64, Vec<Substitute>) {
        let kept = self.substitutes.lock();
        (self.substituted.get(), kept.iter().cloned().collect())
    }
}
