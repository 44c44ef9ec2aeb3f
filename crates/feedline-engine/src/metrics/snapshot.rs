//! The counters of a run as plain nested data, for people and for monitoring.

use std::collections::BTreeMap;

use feedline_data::failure::chain;
use feedline_data::memory::BudgetSnapshot;
use serde::Serialize;

use super::{CostSnapshot, LoadingSnapshot, Metrics, OpTotals, Phase};

/// The counters of a run. Times are totals since the run began.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// Batches delivered.
    pub batches: u64,
    /// Samples delivered.
    pub samples: u64,
    /// Bytes delivered.
    pub content_bytes: u64,
    /// Number of preparer threads.
    pub num_workers: usize,
    /// Time in which these threads had no work.
    pub idle_seconds: f64,
    /// Time in which they waited for memory.
    pub memory_wait_seconds: f64,
    /// Time in which they ran on a core, if the system provides it.
    pub core_seconds: f64,
    /// Time in which they were runnable but had no core.
    pub core_wait_seconds: f64,
    /// Loading, the stage before the first op.
    pub loading: LoadingSnapshot,
    /// The ops in the order of the plan.
    pub ops: Vec<OpSnapshot>,
    /// Reads from the store.
    pub store: StoreSnapshot,
    /// Seek indexes built and used.
    pub seek_index: SeekSnapshot,
    /// The cache of samples.
    pub cache: CacheSnapshot,
    /// The reservoir, if the plan uses one.
    pub reservoir: Option<ReservoirSnapshot>,
    /// The queue of batches.
    pub queue: QueueSnapshot,
    /// Memory in flight.
    pub memory: MemorySnapshot,
    /// The quality of cost predictions.
    pub costs: CostSnapshot,
    /// Seconds that the consumer waited, by cause.
    pub stall_seconds: BTreeMap<&'static str, f64>,
    /// Number of substituted samples.
    pub substituted: u64,
    /// The latest substitutes.
    pub substitutes: Vec<SubstituteSnapshot>,
}

/// One op.
#[derive(Clone, Debug, Serialize)]
pub struct OpSnapshot {
    /// Its name.
    pub name: String,
    /// Time of threads in this op.
    pub busy_seconds: f64,
    /// CPU time. The rest of `busy_seconds` was spent waiting: for a core, or for whatever the op waits for.
    pub cpu_seconds: f64,
    /// Bytes of the resulting fields, extrapolated from measured samples: all slow ones, and one in 16 others.
    pub bytes_out: u64,
    /// Number of samples.
    pub samples: u64,
}

/// The store.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StoreSnapshot {
    /// Bytes read.
    pub bytes: u64,
    /// Number of reads.
    pub reads: u64,
    /// Time of threads in reads.
    pub busy_seconds: f64,
    /// Bytes received over the network.
    pub bytes_received: u64,
    /// Bytes received for the epoch of the last delivered batch. Complete after the epoch's last batch.
    pub bytes_received_epoch: u64,
    /// Requests sent, including retries.
    pub requests: u64,
    /// Retries.
    pub retries: u64,
    /// Samples by the form in which a storage server sent them.
    pub candidates: BTreeMap<String, u64>,
}

/// Seek indexes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SeekSnapshot {
    /// Indexes built in this run.
    pub made: u64,
    /// Files that cannot have an index, because they are not baseline JPEG.
    pub not_seekable: u64,
    /// Bytes of the new indexes.
    pub made_bytes: u64,
    /// Time spent building and saving them. Those that were built while a crop was decoded count with the time of saving. The rest
    /// of their time is part of the decoder's.
    pub busy_seconds: f64,
    /// Samples read by their index.
    pub used: u64,
}

/// The cache of samples.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CacheSnapshot {
    /// Samples found in the cache.
    pub hits: u64,
    /// Samples not found.
    pub misses: u64,
    /// Bytes in memory.
    pub ram_bytes: u64,
    /// Samples in memory.
    pub ram_samples: u64,
    /// Bytes written to disk by this run.
    pub written_bytes: u64,
}

/// Samples that were read in sequence and wait for their turn. Their memory comes in addition to the memory budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReservoirSnapshot {
    /// The size that the plan asks for.
    pub size: u64,
    /// Samples held: the reservoir, samples read ahead, and requested samples.
    pub samples: u64,
    /// Bytes held.
    pub bytes: u64,
    /// The maximum of `bytes` so far.
    pub peak_bytes: u64,
    /// Number of reads. A read covers one range.
    pub reads: u64,
    /// Bytes read, including gaps between samples.
    pub read_bytes: u64,
}

/// The queue of batches.
#[derive(Clone, Debug, Default, Serialize)]
pub struct QueueSnapshot {
    /// Batches ready for the consumer.
    pub ready_batches: usize,
    /// Batches in preparation or ready.
    pub open_batches: usize,
    /// Upper limit of `open_batches`.
    pub limit_batches: usize,
    /// Samples that wait for a thread.
    pub waiting_samples: usize,
    /// Samples that were started before their batch opened.
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

/// A bad sample and its substitute.
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

    /// Seconds that the consumer waited, without the start of the run.
    pub fn stalled_seconds(&self) -> f64 {
        self.stall_seconds.iter().filter(|(cause, _)| **cause != Phase::Start.name()).map(|(_, seconds)| seconds).sum()
    }
}
