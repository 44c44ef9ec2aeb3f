//! Decides the bottleneck of a job. No other file decides it.
//!
//! In: one of the three kinds of evidence in `evidence.rs`. Out: one [`Bound`], or `None` if another loader shows too little from
//! outside. Nothing here measures or counts.

use feedline_data::cost::{Resource, Times};
use serde::{Deserialize, Serialize};

use super::anomaly::{Anomaly, PeriodCause};
use super::evidence::{CountedRun, Examined, JobProfile, Joint, Outside, WorkerProcesses};

/// A trainer that waits for less than this fraction of its time is not limited by loading.
const MIN_STALL_SHARE: f64 = 0.05;
/// A job that reaches less than this fraction of what its resources allow is limited by something else.
const SHORTFALL_RATIO: f64 = 0.92;
/// Minimum idle fraction of the threads for slow samples to be the bottleneck, in a job that falls short.
const MIN_IDLE_SHARE: f64 = 0.05;
/// The same for runs of which only counters are known. It is higher, because it is unknown whether the job falls short.
const MIN_IDLE_SHARE_COUNTED: f64 = 0.15;
/// Minimum gain with more memory for memory to be the bottleneck.
const MIN_MEMORY_GAIN: f64 = 1.07;
/// Minimum fraction of the threads' time spent waiting for memory, for memory to be the bottleneck of a counted run.
const MIN_MEMORY_WAIT_SHARE: f64 = 0.1;
/// Alternatively, the minimum fraction of the budget that was in use at the peak.
const MIN_MEMORY_PEAK_SHARE: f64 = 0.9;
/// Minimum fraction of the threads' time in Python ops for Python to be the bottleneck.
const MIN_PYTHON_SHARE: f64 = 0.5;
/// A thread or worker of another loader that computes for more than this fraction of its time is limited by computing. For a
/// worker, waiting for a core counts as computing.
const MIN_COMPUTE_SHARE: f64 = 0.5;
/// Minimum fraction of the time that worker processes wait for a disk, as evidence of reading.
const MIN_BLOCKED_SHARE: f64 = 0.1;
/// Minimum bytes that a worker process reads, as evidence of reading. A worker reads fewer bytes to start and to receive its tasks.
const MIN_READ_BYTES: f64 = 32.0 * 1024.0 * 1024.0;

/// The bottleneck of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The accelerator: loading keeps up.
    #[strum(to_string = "the training step: loading keeps up with it")]
    Step,
    /// Preparer threads, or the cores that they run on.
    #[strum(to_string = "preparing: the threads, or the cores they run on, are fully used")]
    Prepare,
    /// The store.
    #[strum(to_string = "reading: the store is at its limit")]
    Read,
    /// The link to another machine.
    #[strum(to_string = "the network: the link to the data is full")]
    Network,
    /// Slow samples, for which samples behind them have to wait.
    #[strum(to_string = "slow samples: other samples are ready and wait behind them")]
    HeadOfLine,
    /// Ops in Python.
    #[strum(to_string = "Python: ops in Python run one at a time")]
    Python,
    /// The memory budget.
    #[strum(to_string = "memory: the budget is too small to prepare enough samples at once")]
    Memory,
    /// Passing a batch from the loader to the step.
    #[strum(to_string = "the hand-over: a ready batch takes longer to reach the step than to prepare")]
    HandOver,
}

impl Bound {
    /// All bounds, in the order of their declaration.
    pub const ALL: [Self; 8] = [
        Self::Step,
        Self::Prepare,
        Self::Read,
        Self::Network,
        Self::HeadOfLine,
        Self::Python,
        Self::Memory,
        Self::HandOver,
    ];
}

impl From<Resource> for Bound {
    fn from(resource: Resource) -> Self {
        match resource {
            Resource::Step => Self::Step,
            Resource::Prepare | Resource::Cores => Self::Prepare,
            Resource::Python => Self::Python,
            Resource::Read | Resource::Storage => Self::Read,
            Resource::Network => Self::Network,
        }
    }
}

/// Whether a job is slower than its resources allow.
pub(super) fn falls_short(times: &Times, joint: &Joint) -> bool {
    joint.samples_per_second < SHORTFALL_RATIO * times.samples_per_second()
}

impl Examined<'_> {
    /// The bottleneck of the job.
    pub(super) fn bound(&self) -> Bound {
        let Self { times, profile, joint, with_memory } = self;
        // The resources do not explain the speed. The order of the checks matters: the most specific evidence comes first.
        if falls_short(times, joint) {
            if with_memory.is_some_and(|rate| rate > MIN_MEMORY_GAIN * joint.samples_per_second) {
                return Bound::Memory;
            }
            if joint.is_slow_to_take() {
                return Bound::HandOver;
            }
            if profile.reads_ahead && joint.waits_for_reads() && joint.stall_share > MIN_STALL_SHARE {
                return profile.reading();
            }
            // The consumer waits although threads are idle. So it waits for single samples, which one thread alone must prepare.
            if joint.idle_share > MIN_IDLE_SHARE && joint.stall_share > MIN_STALL_SHARE {
                return Bound::HeadOfLine;
            }
        }
        // The resource that a sample needs for the longest time.
        match Bound::from(times.bound()) {
            // The hand-over is not a resource, so it is compared with the step here.
            Bound::Step if joint.is_slow_to_take() => Bound::HandOver,
            Bound::Prepare => profile.threads(),
            other => other,
        }
    }
}

impl CountedRun {
    /// The bottleneck of the run.
    pub(super) fn bound(&self) -> Bound {
        let Self { profile, joint, .. } = self;
        let is_idle = joint.idle_share > MIN_IDLE_SHARE_COUNTED;
        let is_starved =
            self.memory_wait_share > MIN_MEMORY_WAIT_SHARE || self.memory_peak_share > MIN_MEMORY_PEAK_SHARE;
        match () {
            // The first condition that holds decides.
            // The trainer hardly waits.
            () if joint.stall_share < MIN_STALL_SHARE => Bound::Step,
            () if joint.hand_over_ms > joint.wait_ms => Bound::HandOver,
            () if !self.has_threads => self.waited_for(),
            () if is_idle && is_starved => Bound::Memory,
            () if profile.reads_ahead && joint.waits_for_reads() => profile.reading(),
            () if is_idle => Bound::HeadOfLine,
            () => profile.threads(),
        }
    }

    /// The cause of the longest waits. Used if a node prepares the samples, because nothing is known about its threads.
    fn waited_for(&self) -> Bound {
        let stalls = &self.joint.stalls;
        let others = [(stalls.read, self.profile.reading()), (stalls.memory, Bound::Memory)];
        let first = (stalls.prepare, Bound::Prepare);
        // On a tie the first one wins: preparing is the most likely reason.
        others.into_iter().fold(first, |most, other| if other.0 > most.0 { other } else { most }).1
    }
}

impl Outside<'_> {
    /// The bottleneck of the other loader. `None` if it cannot be determined from outside.
    pub(super) fn bound(&self) -> Option<Bound> {
        if self.stall_share < MIN_STALL_SHARE {
            return Some(Bound::Step);
        }
        // Worker processes take turns, and the trainer waits for each of them.
        let is_of_workers = |anomaly: &Anomaly| matches!(anomaly, Anomaly::Period { cause: PeriodCause::Workers, .. });
        if self.anomalies.iter().any(is_of_workers) {
            return Some(Bound::Prepare);
        }
        // Some batches are much slower than the others. That shows slow samples only if the trainer's thread did not wait for a
        // core, which also makes batches slow.
        let queued = self.consumer.queued;
        let has_two_kinds = self.anomalies.iter().any(|anomaly| matches!(anomaly, Anomaly::Bimodal { .. }));
        if has_two_kinds && queued < MIN_STALL_SHARE * self.waited {
            return Some(Bound::HeadOfLine);
        }
        // The trainer's thread computed for most of the wait. Without workers it prepares the samples itself. With workers it
        // unpickles and collates. Its wait for a core is left out, because it neither computed nor waited for batches then.
        if self.consumer.computed > MIN_COMPUTE_SHARE * (self.waited - queued) {
            return Some(Bound::Prepare);
        }
        match &self.workers {
            // The thread loads itself and mostly did not compute, so it read.
            None => Some(Bound::Read),
            Some(workers) => workers.bound(self.stall_share),
        }
    }
}

impl WorkerProcesses {
    fn bound(&self, stall_share: f64) -> Option<Bound> {
        let computing = self.computing?;
        if computing > MIN_COMPUTE_SHARE {
            return Some(Bound::Prepare);
        }
        // A worker is idle only while enough batches are ready, and then the trainer does not wait. So it is idle for at most
        // `1 - stall_share` of its time. If it did not compute for longer than that, it was blocked: by storage, if there is
        // evidence that it reads.
        let is_blocked = 1.0 - computing > 1.0 - stall_share + MIN_STALL_SHARE;
        let reads = self.blocked > MIN_BLOCKED_SHARE || self.read_bytes > MIN_READ_BYTES;
        (is_blocked && reads).then_some(Bound::Read)
    }
}

impl Joint {
    /// Whether passing a ready batch to the trainer takes longer than waiting for it, and longer than the step.
    fn is_slow_to_take(&self) -> bool {
        // At least 1 us, because without a step any noise would be longer.
        self.hand_over_ms > self.wait_ms && self.hand_over_ms > self.step_ms.max(1e-3)
    }

    /// Whether the trainer waited longer for stored bytes than for ops.
    fn waits_for_reads(&self) -> bool {
        self.stalls.read > self.stalls.prepare
    }
}

impl JobProfile {
    /// The bottleneck of a job that waits for stored bytes.
    fn reading(&self) -> Bound {
        if self.is_remote { Bound::Network } else { Bound::Read }
    }

    /// The bottleneck of a job whose threads are always busy.
    fn threads(&self) -> Bound {
        match () {
            () if self.reads_longer => self.reading(),
            () if self.foreign_share > MIN_PYTHON_SHARE => Bound::Python,
            () => Bound::Prepare,
        }
    }
}

#[cfg(test)]
mod tests;
