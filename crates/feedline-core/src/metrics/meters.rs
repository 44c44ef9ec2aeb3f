//! The counters of a run. All are relaxed atomics: they are read for people, never for decisions about data.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{CacheSnapshot, CostMeter, LoadingMeter, Recorder, SeekSnapshot, StallMeter, TrafficMeter};
use crate::batch::Batch;
use crate::error::SampleFailure;
use crate::plan::Plan;

/// Pairs of bad sample and substitute that are kept for the snapshot.
const KEPT_SUBSTITUTES: usize = 1000;

/// Time and bytes of one op.
#[derive(Debug)]
pub struct OpMeter {
    /// The op's name.
    pub name: Arc<str>,
    busy_nanos: AtomicU64,
    /// Processor time of samples of which it was taken, and their time.
    cpu_nanos: AtomicU64,
    clocked_nanos: AtomicU64,
    bytes_out: AtomicU64,
    samples: AtomicU64,
}

/// What an op did.
#[derive(Clone, Copy, Debug)]
pub struct OpTotals {
    /// Time of threads in it.
    pub busy: Duration,
    /// Their processor time, from the samples of which it was taken.
    pub cpu: Duration,
    /// Bytes of the fields that it left.
    pub bytes_out: u64,
    /// Applications.
    pub samples: u64,
}

impl OpMeter {
    fn new(name: &Arc<str>) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            name: Arc::clone(name),
            busy_nanos: zero(),
            cpu_nanos: zero(),
            clocked_nanos: zero(),
            bytes_out: zero(),
            samples: zero(),
        }
    }

    /// Books one application, with its processor time where that was taken.
    pub fn add(&self, busy: Duration, cpu: Option<Duration>, bytes_out: usize) {
        self.busy_nanos.fetch_add(busy.as_nanos() as u64, Ordering::Relaxed);
        if let Some(cpu) = cpu {
            self.cpu_nanos.fetch_add(cpu.as_nanos() as u64, Ordering::Relaxed);
            self.clocked_nanos.fetch_add(busy.as_nanos() as u64, Ordering::Relaxed);
        }
        self.bytes_out.fetch_add(bytes_out as u64, Ordering::Relaxed);
        self.samples.fetch_add(1, Ordering::Relaxed);
    }

    /// All of it.
    pub fn read(&self) -> OpTotals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (busy, samples) = (Duration::from_nanos(read(&self.busy_nanos)), read(&self.samples));
        let share = read(&self.cpu_nanos) as f64 / read(&self.clocked_nanos).max(1) as f64;
        OpTotals { busy, cpu: busy.mul_f64(share.min(1.0)), bytes_out: read(&self.bytes_out), samples }
    }
}

/// What preparer threads did when they did not prepare.
#[derive(Debug, Default)]
pub struct ThreadMeter {
    idle_nanos: AtomicU64,
    memory_nanos: AtomicU64,
}

impl ThreadMeter {
    /// Books time in which a thread had nothing to do.
    pub fn add_idle(&self, idle: Duration) {
        self.idle_nanos.fetch_add(idle.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Books time in which a thread waited for memory.
    pub fn add_memory(&self, waited: Duration) {
        self.memory_nanos.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Idle time, and time waited for memory.
    pub fn read(&self) -> (Duration, Duration) {
        let read = |counter: &AtomicU64| Duration::from_nanos(counter.load(Ordering::Relaxed));
        (read(&self.idle_nanos), read(&self.memory_nanos))
    }
}

/// Time, bytes and number of reads.
#[derive(Debug, Default)]
pub struct ReadMeter {
    busy_nanos: AtomicU64,
    bytes: AtomicU64,
    reads: AtomicU64,
}

impl ReadMeter {
    /// Runs and times one read.
    pub fn time<T>(&self, read: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = read();
        self.busy_nanos.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.reads.fetch_add(1, Ordering::Relaxed);
        result
    }

    /// Books bytes that were read.
    pub fn add_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Busy time, bytes, reads.
    pub fn read(&self) -> (Duration, u64, u64) {
        let busy = Duration::from_nanos(self.busy_nanos.load(Ordering::Relaxed));
        (busy, self.bytes.load(Ordering::Relaxed), self.reads.load(Ordering::Relaxed))
    }
}

/// Seek indexes: made, and used.
#[derive(Debug, Default)]
pub struct SeekMeter {
    made: AtomicU64,
    not_seekable: AtomicU64,
    busy_nanos: AtomicU64,
    bytes: AtomicU64,
    used: AtomicU64,
}

impl SeekMeter {
    /// Books a file that was walked.
    pub fn add_made(&self, busy: Duration, is_seekable: bool, bytes: usize) {
        let counter = if is_seekable { &self.made } else { &self.not_seekable };
        counter.fetch_add(1, Ordering::Relaxed);
        self.busy_nanos.fetch_add(busy.as_nanos() as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Books a sample of which an index said what to read.
    pub fn add_used(&self) {
        self.used.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters.
    pub fn read(&self) -> SeekSnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SeekSnapshot {
            made: read(&self.made),
            not_seekable: read(&self.not_seekable),
            made_bytes: read(&self.bytes),
            busy_seconds: Duration::from_nanos(read(&self.busy_nanos)).as_secs_f64(),
            used: read(&self.used),
        }
    }
}

/// The cache of samples.
#[derive(Debug, Default)]
pub struct CacheMeter {
    hits: AtomicU64,
    misses: AtomicU64,
    memory_bytes: AtomicU64,
    memory_samples: AtomicU64,
    disk_bytes: AtomicU64,
}

impl CacheMeter {
    /// Books a sample that was there.
    pub fn add_hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Books a sample that was not.
    pub fn add_miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    /// Books what was put into memory.
    pub fn add_to_memory(&self, bytes: usize) {
        self.memory_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.memory_samples.fetch_add(1, Ordering::Relaxed);
    }

    /// Books what was put on disk.
    pub fn add_to_disk(&self, bytes: usize) {
        self.disk_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The counters.
    pub fn read(&self) -> CacheSnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheSnapshot {
            hits: read(&self.hits),
            misses: read(&self.misses),
            ram_bytes: read(&self.memory_bytes),
            ram_samples: read(&self.memory_samples),
            written_bytes: read(&self.disk_bytes),
        }
    }
}

/// A bad sample and what was delivered in its place.
#[derive(Clone, Debug)]
pub struct Substitute {
    /// The bad sample and what was wrong.
    pub failure: Arc<SampleFailure>,
    /// The substitute's name.
    pub by: String,
}

/// All counters of a run.
#[derive(Debug)]
pub struct Metrics {
    /// One meter per op of the plan.
    pub ops: Vec<OpMeter>,
    /// Preparer threads.
    pub threads: ThreadMeter,
    /// What comes before the first op.
    pub loading: LoadingMeter,
    /// How well costs were predicted.
    pub costs: CostMeter,
    /// The store.
    pub read: ReadMeter,
    /// What the supply gets from peers.
    pub traffic: Arc<TrafficMeter>,
    /// Seek indexes.
    pub seek: SeekMeter,
    /// The cache of samples.
    pub cache: CacheMeter,
    /// Time that consumers waited.
    pub stalls: StallMeter,
    /// The life of batches, where that is asked for.
    pub recorder: Recorder,
    pub(crate) samples: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) content_bytes: AtomicU64,
    substituted: AtomicU64,
    substitutes: Mutex<VecDeque<Substitute>>,
}

impl Metrics {
    /// Counters at zero for the ops of `plan`.
    pub fn new(plan: &Plan) -> Self {
        Self::counting(plan, Arc::default())
    }

    /// The same, with the counter of what a supply gets from peers.
    pub fn counting(plan: &Plan, traffic: Arc<TrafficMeter>) -> Self {
        Self {
            ops: plan.ops().iter().map(|op| OpMeter::new(op.name())).collect(),
            threads: ThreadMeter::default(),
            loading: LoadingMeter::default(),
            costs: CostMeter::default(),
            read: ReadMeter::default(),
            traffic,
            seek: SeekMeter::default(),
            cache: CacheMeter::default(),
            stalls: StallMeter::default(),
            recorder: Recorder::default(),
            samples: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            content_bytes: AtomicU64::new(0),
            substituted: AtomicU64::new(0),
            substitutes: Mutex::default(),
        }
    }

    /// Books a batch that was delivered.
    pub fn add_batch(&self, batch: &Batch) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.samples.fetch_add(batch.len as u64, Ordering::Relaxed);
        self.content_bytes.fetch_add(batch.content_bytes() as u64, Ordering::Relaxed);
    }

    /// Books substitutes that were delivered.
    pub fn add_substitutes(&self, new: &[Substitute]) {
        // Nearly always: so nobody waits here for a snapshot that is being taken.
        if new.is_empty() {
            return;
        }
        self.substituted.fetch_add(new.len() as u64, Ordering::Relaxed);
        let mut kept = self.substitutes.lock().unwrap_or_else(PoisonError::into_inner);
        for substitute in new {
            if kept.len() == KEPT_SUBSTITUTES {
                kept.pop_front();
            }
            kept.push_back(substitute.clone());
        }
    }

    /// How many substitutes were delivered, and the latest of them.
    pub fn substitutes(&self) -> (u64, Vec<Substitute>) {
        let kept = self.substitutes.lock().unwrap_or_else(PoisonError::into_inner);
        (self.substituted.load(Ordering::Relaxed), kept.iter().cloned().collect())
    }
}
