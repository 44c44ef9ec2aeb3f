//! The state of a run in numbers: plain nested data, for people and for monitoring.

use std::collections::BTreeMap;

use feedline_data::failure::chain;
use feedline_data::memory::BudgetSnapshot;
use serde::Serialize;

use super::{CostSnapshot, LoadingSnapshot, Metrics, OpTotals, Phase};

/// The state of a run in numbers. Times are totals since the run began.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// Batches delivered.
    pub batches: u64,
    /// Samples delivered.
    pub samples: u64,
    /// Bytes delivered.
    pub content_bytes: u64,
    /// Preparer threads.
    pub num_workers: usize,
    /// Time in which these threads had nothing to do.
    pub idle_seconds: f64,
    /// Time in which they waited for memory.
    pub memory_wait_seconds: f64,
    /// Time in which they ran on a core, where the system says it.
    pub core_seconds: f64,
    /// Time in which they could have run and no core was free.
    pub core_wait_seconds: f64,
    /// What comes before the first op.
    pub loading: LoadingSnapshot,
    /// Ops in the order of the plan.
    pub ops: Vec<OpSnapshot>,
    /// The store.
    pub store: StoreSnapshot,
    /// Seek indexes.
    pub seek_index: SeekSnapshot,
    /// The cache of samples.
    pub cache: CacheSnapshot,
    /// The reservoir, where samples are drawn from one.
    pub reservoir: Option<ReservoirSnapshot>,
    /// What is prepared and waits.
    pub queue: QueueSnapshot,
    /// Memory in flight.
    pub memory: MemorySnapshot,
    /// How well it was predicted what samples take.
    pub costs: CostSnapshot,
    /// Seconds that the consumer waited, by cause.
    pub stall_seconds: BTreeMap<&'static str, f64>,
    /// Bad samples that were replaced.
    pub substituted: u64,
    /// The latest of them.
    pub substitutes: Vec<SubstituteSnapshot>,
}

/// One op.
#[derive(Clone, Debug, Serialize)]
pub struct OpSnapshot {
    /// Its name.
    pub name: String,
    /// Time of threads in it.
    pub busy_seconds: f64,
    /// Their processor time: what is left of `busy_seconds` was waited, for whatever the op waits for or for a core.
    pub cpu_seconds: f64,
    /// Bytes of the fields that it left, from the samples that were looked at: all that take long, and one in 16 others.
    pub bytes_out: u64,
    /// Samples that it was applied to.
    pub samples: u64,
}

/// The store.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StoreSnapshot {
    /// Bytes of samples that were read.
    pub bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Time that threads spent reading.
    pub busy_seconds: f64,
    /// Bytes that came over the wire.
    pub bytes_received: u64,
    /// Those for the epoch of the last batch delivered: complete once its last batch is.
    pub bytes_received_epoch: u64,
    /// Requests that were sent, those that were sent again included.
    pub requests: u64,
    /// Requests that were sent again.
    pub retries: u64,
    /// Samples by the form in which a storage server sent them.
    pub candidates: BTreeMap<String, u64>,
}

/// Seek indexes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SeekSnapshot {
    /// Files whose index was made in this run.
    pub made: u64,
    /// Files that were found to have none: not baseline JPEG.
    pub not_seekable: u64,
    /// Bytes of the indexes made.
    pub made_bytes: u64,
    /// Time that making them took.
    pub busy_seconds: f64,
    /// Samples of which an index said what to read.
    pub used: u64,
}

/// The cache of samples.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CacheSnapshot {
    /// Samples that came from it.
    pub hits: u64,
    /// Samples that did not.
    pub misses: u64,
    /// Bytes in memory.
    pub ram_bytes: u64,
    /// Samples in memory.
    pub ram_samples: u64,
    /// Bytes that this run put on disk.
    pub written_bytes: u64,
}

/// What was read in sequence and waits for its turn; held beside the memory budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReservoirSnapshot {
    /// Samples that it is meant to have.
    pub size: u64,
    /// Samples that are held, read ahead and asked for.
    pub samples: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Most bytes ever held.
    pub peak_bytes: u64,
    /// Reads, each from the begin of a range to its end.
    pub reads: u64,
    /// Bytes of them, with what lies between samples.
    pub read_bytes: u64,
}

/// What waits to be taken.
#[derive(Clone, Debug, Default, Serialize)]
pub struct QueueSnapshot {
    /// Batches ready for the consumer.
    pub ready_batches: usize,
    /// Batches begun and not delivered, ready ones included.
    pub open_batches: usize,
    /// Most batches that may be open.
    pub limit_batches: usize,
    /// Samples that wait for a thread.
    pub waiting_samples: usize,
    /// Samples in preparation, or prepared, that have no place in an open batch yet.
    pub early_samples: usize,
}

/// Memory in flight.
#[derive(Clone, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct MemorySnapshot {
    pub budget_bytes: u64,
    pub used_bytes: u64,
    pub peak_bytes: u64,
}

/// A bad sample and what was delivered in its place.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct SubstituteSnapshot {
    pub epoch: u64,
    pub position: u64,
    pub bad: String,
    pub by: String,
    pub reason: String,
}

impl Snapshot {
    /// Reads the counters.
    pub fn new(metrics: &Metrics, num_workers: usize, queue: QueueSnapshot, budget: BudgetSnapshot) -> Self {
        let (busy, bytes, reads) = metrics.read.read();
        let traffic = metrics.traffic.read();
        let threads = metrics.threads.read();
        let (substituted, substitutes) = metrics.substitutes();
        Self {
            batches: metrics.batches.get(),
            samples: metrics.samples.get(),
            content_bytes: metrics.content_bytes.get(),
            num_workers,
            idle_seconds: threads.idle.as_secs_f64(),
            memory_wait_seconds: threads.memory.as_secs_f64(),
            core_seconds: threads.cores.ran.as_secs_f64(),
            core_wait_seconds: threads.cores.waited.as_secs_f64(),
            loading: metrics.loading.read(),
            ops: metrics
                .ops
                .iter()
                .map(|op| {
                    let OpTotals { busy, cpu, bytes_out, samples } = op.read();
                    let (busy_seconds, cpu_seconds) = (busy.as_secs_f64(), cpu.as_secs_f64());
                    OpSnapshot { name: op.name.to_string(), busy_seconds, cpu_seconds, bytes_out, samples }
                })
                .collect(),
            store: StoreSnapshot {
                bytes,
                reads,
                busy_seconds: busy.as_secs_f64(),
                bytes_received: traffic.all.bytes,
                bytes_received_epoch: traffic.bytes_of_epoch,
                requests: traffic.all.requests,
                retries: traffic.all.retries,
                candidates: metrics.traffic.candidates(),
            },
            seek_index: metrics.seek.read(),
            cache: metrics.cache.read(),
            reservoir: None,
            queue,
            memory: MemorySnapshot { budget_bytes: budget.limit, used_bytes: budget.used, peak_bytes: budget.peak },
            costs: metrics.costs.read(),
            stall_seconds: metrics.stalls.seconds(),
            substituted,
            substitutes: substitutes
                .into_iter()
                .map(|substitute| SubstituteSnapshot {
                    epoch: substitute.failure.epoch.0,
                    position: substitute.failure.position.0,
                    bad: substitute.failure.key.clone(),
                    by: substitute.by,
                    reason: chain(&*substitute.failure.cause),
                })
                .collect(),
        }
    }

    /// Seconds that the consumer waited, the start of the run not counted.
    pub fn stalled_seconds(&self) -> f64 {
        self.stall_seconds.iter().filter(|(cause, _)| **cause != Phase::Start.name()).map(|(_, seconds)| seconds).sum()
    }
}
