//! The facts from which `verdict.rs` decides what bounds a job.
//!
//! In: measurements or counters. Out: one of three kinds of evidence, the most reliable first: [`Examined`], [`CountedRun`],
//! [`Outside`].

use std::collections::BTreeMap;

use feedline_data::cost::Times;
use feedline_engine::metrics::Phase;

use super::anomaly::Anomaly;
use super::parts::Parts;

/// A job whose parts were measured alone, then all together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Examined<'a> {
    /// Seconds of each resource that a sample needs.
    pub times: &'a Times,
    pub profile: JobProfile,
    pub joint: Joint,
    /// Samples per second with a larger budget, if that was tried.
    pub with_memory: Option<f64>,
}

/// A run of which only counters are known: no part was measured alone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CountedRun {
    pub profile: JobProfile,
    pub joint: Joint,
    /// Whether the run prepares samples with its own threads. Otherwise a node prepares them.
    pub has_threads: bool,
    /// The share of the threads' time that they waited for memory.
    pub memory_wait_share: f64,
    /// The peak of the memory in use, as a share of the budget.
    pub memory_peak_share: f64,
}

/// Another loader, watched from outside.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outside<'a> {
    /// The share of the time that the consumer waited for batches.
    pub stall_share: f64,
    pub anomalies: &'a [Anomaly],
    /// Seconds that the consumer waited for batches.
    pub waited: f64,
    pub consumer: ConsumerThread,
    /// `None` if the consumer's own thread loads.
    pub workers: Option<WorkerProcesses>,
}

/// The thread that takes batches from another loader, while it waits for them.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConsumerThread {
    /// Seconds on a core.
    pub computed: f64,
    /// Seconds in the run queue of a core.
    pub queued: f64,
}

/// The worker processes of another loader, as reported by the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkerProcesses {
    /// The share of their time on a core or in its run queue; `None` if they lived too briefly to be measured.
    pub computing: Option<f64>,
    /// The share of their time that they waited for a disk.
    pub blocked: f64,
    /// Bytes that each of them read.
    pub read_bytes: f64,
}

/// The job as a whole, measured or counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Joint {
    pub samples_per_second: f64,
    /// The share of the time that the trainer waited for batches or took them over.
    pub stall_share: f64,
    /// Milliseconds that the trainer waits for a batch.
    pub wait_ms: f64,
    /// Milliseconds from a ready batch until the step has it.
    pub hand_over_ms: f64,
    /// Milliseconds of the step.
    pub step_ms: f64,
    /// The share of their time that threads had nothing to do.
    pub idle_share: f64,
    pub stalls: Stalls,
}

/// Seconds that the trainer waited for each cause.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Stalls {
    pub prepare: f64,
    pub read: f64,
    pub memory: f64,
}

impl Stalls {
    /// Takes them from seconds by the name of a phase.
    pub(super) fn of(seconds: &BTreeMap<&'static str, f64>) -> Self {
        let of = |phase: Phase| seconds.get(phase.name()).copied().unwrap_or_default();
        Self { prepare: of(Phase::Prepare), read: of(Phase::Read), memory: of(Phase::Memory) }
    }
}

/// The kind of a job: where its bytes come from, and what its threads spend their time on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JobProfile {
    pub is_remote: bool,
    /// Whether bytes arrive while threads prepare other samples or have nothing to do.
    pub reads_ahead: bool,
    /// The share of the threads' time that ops in another language take.
    pub foreign_share: f64,
    /// Whether threads wait longer for stored bytes than they prepare.
    pub reads_longer: bool,
}

impl From<&Parts> for JobProfile {
    fn from(parts: &Parts) -> Self {
        Self {
            is_remote: parts.is_remote,
            reads_ahead: parts.reads_ahead,
            foreign_share: parts.foreign_share(),
            reads_longer: parts.read_ms() > parts.prepare_ms,
        }
    }
}
