//! What bounds a job: the one place that decides it.
//!
//! In: what is known of a job, as one of the three kinds of `evidence.rs`. Out: one bound; of a loader that is seen from outside
//! only, none if too little is known. Nothing here measures or counts.

use feedline_data::cost::{Resource, Times};
use serde::{Deserialize, Serialize};

use super::anomaly::{Anomaly, PeriodCause};
use super::evidence::{CountedRun, Examined, JobProfile, Joint, Outside, WorkerProcesses};

/// A trainer that waits less than this part of its time does not wait for loading.
const WAITS: f64 = 0.05;
/// Below this part of what the resources allow, something else holds the job back.
const FALLS_SHORT: f64 = 0.92;
/// The part of their time in which threads have nothing to do where slow samples are the bound, of a job that falls short.
const IDLE: f64 = 0.05;
/// The same where nothing was measured alone, so that it is not known whether the job falls short.
const IDLE_UNSURE: f64 = 0.15;
/// What more memory has to gain before its lack is the bound.
const GAINS: f64 = 1.07;
/// The part of the threads' time that waits for memory, and of the budget in use, that make memory the bound.
const STARVED: f64 = 0.1;
const FULL: f64 = 0.9;
/// The part of the threads' time that goes to ops in Python where these are the bound.
const MOSTLY: f64 = 0.5;
/// The part of its time above which another loader computes rather than waits. Queueing for a core counts as computing.
const COMPUTES: f64 = 0.5;
/// The part of their time that worker processes wait for a disk before it counts as evidence of reading.
const BLOCKED: f64 = 0.1;
/// Bytes of a worker process that count as evidence of reading: more than it reads to start and to take its tasks.
const MUCH_BYTES: f64 = 32.0 * 1024.0 * 1024.0;

/// What bounds a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The accelerator: loading keeps up.
    #[strum(to_string = "the step: loading keeps up with it")]
    Step,
    /// Preparer threads, or the cores that they run on.
    #[strum(to_string = "preparing: the threads, or the cores that they run on, can do no more")]
    Prepare,
    /// The store.
    #[strum(to_string = "reading: the store gives no more")]
    Read,
    /// The link to another machine.
    #[strum(to_string = "the network: the link to the data is full")]
    Network,
    /// Slow samples that others have to wait for.
    #[strum(to_string = "slow samples: others are ready and wait behind them")]
    HeadOfLine,
    /// Ops in Python.
    #[strum(to_string = "Python: ops in Python run one at a time")]
    Python,
    /// The memory budget.
    #[strum(to_string = "memory: the budget is too small to prepare enough at once")]
    Memory,
    /// The way of a batch from the loader to the step.
    #[strum(to_string = "the hand-over: batches take longer from the loader to the step than to prepare")]
    HandOver,
}

impl Bound {
    /// All of them.
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

/// Whether a job stays below what its resources allow.
pub(super) fn falls_short(times: &Times, joint: &Joint) -> bool {
    joint.samples_per_second < FALLS_SHORT * times.samples_per_second()
}

impl Examined<'_> {
    /// What bounds the job.
    pub(super) fn bound(&self) -> Bound {
        let Self { times, profile, joint, with_memory } = self;
        if falls_short(times, joint) {
            if with_memory.is_some_and(|rate| rate > GAINS * joint.samples_per_second) {
                return Bound::Memory;
            }
            if joint.is_slow_to_take() {
                return Bound::HandOver;
            }
            if profile.reads_ahead && joint.waits_for_reads() && joint.stall_share > WAITS {
                return profile.reading();
            }
            // The consumer waits, and threads have nothing to do: what it waits for cannot be divided among them.
            if joint.idle_share > IDLE && joint.stall_share > WAITS {
                return Bound::HeadOfLine;
            }
        }
        match Bound::from(times.bound()) {
            Bound::Step if joint.is_slow_to_take() => Bound::HandOver,
            Bound::Prepare => profile.threads(),
            other => other,
        }
    }
}

impl CountedRun {
    /// What bounded the run.
    pub(super) fn bound(&self) -> Bound {
        let Self { profile, joint, .. } = self;
        let is_idle = joint.idle_share > IDLE_UNSURE;
        let is_starved = self.memory_wait_share > STARVED || self.memory_peak_share > FULL;
        match () {
            () if joint.stall_share < WAITS => Bound::Step,
            () if joint.hand_over_ms > joint.wait_ms => Bound::HandOver,
            () if !self.has_threads => self.waited_for(),
            () if is_idle && is_starved => Bound::Memory,
            () if profile.reads_ahead && joint.waits_for_reads() => profile.reading(),
            () if is_idle => Bound::HeadOfLine,
            () => profile.threads(),
        }
    }

    /// What was waited for most, where a node prepares and nothing else is known of it.
    fn waited_for(&self) -> Bound {
        let stalls = &self.joint.stalls;
        let others = [(stalls.read, self.profile.reading()), (stalls.memory, Bound::Memory)];
        let first = (stalls.prepare, Bound::Prepare);
        others.into_iter().fold(first, |most, other| if other.0 > most.0 { other } else { most }).1
    }
}

impl Outside<'_> {
    /// What bounded the other loader; none if that cannot be told from outside.
    pub(super) fn bound(&self) -> Option<Bound> {
        if self.stall_share < WAITS {
            return Some(Bound::Step);
        }
        let is_round = |anomaly: &Anomaly| matches!(anomaly, Anomaly::Period { cause: PeriodCause::Workers, .. });
        if self.anomalies.iter().any(is_round) {
            return Some(Bound::Prepare);
        }
        // Batches that had to wait for a core take longer than others whatever is in them.
        let queued = self.consumer.queued;
        let has_two_kinds = self.anomalies.iter().any(|anomaly| matches!(anomaly, Anomaly::Bimodal { .. }));
        if has_two_kinds && queued < WAITS * self.waited {
            return Some(Bound::HeadOfLine);
        }
        // What the thread waited for a core it did not wait for anything else. With workers, unpickling and collating is work, too.
        if self.consumer.computed > COMPUTES * (self.waited - queued) {
            return Some(Bound::Prepare);
        }
        match &self.workers {
            None => Some(Bound::Read),
            Some(workers) => workers.bound(self.stall_share),
        }
    }
}

impl WorkerProcesses {
    fn bound(&self, stall_share: f64) -> Option<Bound> {
        let computing = self.computing?;
        if computing > COMPUTES {
            return Some(Bound::Prepare);
        }
        // A worker has nothing to do only while enough batches are ready, and then the step does not wait. What it neither computed
        // nor was idle in that way, it waited: for storage, if there is evidence that it reads.
        let waits = 1.0 - computing > 1.0 - stall_share + WAITS;
        let reads = self.blocked > BLOCKED || self.read_bytes > MUCH_BYTES;
        (waits && reads).then_some(Bound::Read)
    }
}

impl Joint {
    /// Whether the trainer takes longer to get hold of a batch that is ready than it waits for it, or works on it.
    fn is_slow_to_take(&self) -> bool {
        self.hand_over_ms > self.wait_ms && self.hand_over_ms > self.step_ms.max(1e-3)
    }

    /// Whether it waited for stored bytes rather than for ops.
    fn waits_for_reads(&self) -> bool {
        self.stalls.read > self.stalls.prepare
    }
}

impl JobProfile {
    /// The bound of a job that waits for stored bytes.
    fn reading(&self) -> Bound {
        if self.is_remote { Bound::Network } else { Bound::Read }
    }

    /// The bound of a job whose threads are busy all the time: what they are busy with.
    fn threads(&self) -> Bound {
        match () {
            () if self.reads_longer => self.reading(),
            () if self.foreign_share > MOSTLY => Bound::Python,
            () => Bound::Prepare,
        }
    }
}

#[cfg(test)]
mod tests;
