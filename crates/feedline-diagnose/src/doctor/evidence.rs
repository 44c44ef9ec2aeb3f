//! What is known of a job before it is said what bounds it.
//!
//! In: measurements or counters. Out: one of three kinds of evidence, the surest first: [`Examined`], [`Counted`], [`Outside`]. Facts
//! only: `verdict.rs` decides what they mean.

use std::collections::BTreeMap;

use feedline_data::cost::Times;
use feedline_engine::metrics::Phase;

use super::oddity::Oddity;
use super::parts::Parts;

/// Each part was measured alone, and then all together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Examined<'a> {
    /// What a sample needs of each resource.
    pub times: &'a Times,
    pub nature: Nature,
    pub joint: Joint,
    /// Samples a second with a larger budget, where that was tried.
    pub with_memory: Option<f64>,
}

/// A run was counted, and nothing measured alone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub nature: Nature,
    pub joint: Joint,
    /// Whether it has threads of its own; else a node prepares its samples.
    pub has_threads: bool,
    /// The part of the threads' time in which they waited for memory.
    pub memory_wait_share: f64,
    /// The most of the budget that was in use at once, as a part of it.
    pub memory_peak_share: f64,
}

/// Another loader was watched from outside.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outside<'a> {
    /// The part of the time in which the consumer waited for batches.
    pub stall_share: f64,
    pub oddities: &'a [Oddity],
    /// Seconds in which the consumer waited for batches.
    pub waited: f64,
    pub consumer: ConsumerThread,
    /// None if the consumer's own thread loads.
    pub workers: Option<WorkerProcesses>,
}

/// The thread that asks another loader for batches, while it does so.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConsumerThread {
    /// Seconds on a core.
    pub computed: f64,
    /// Seconds in the queue for one.
    pub queued: f64,
}

/// The worker processes of another loader, as far as the system says.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkerProcesses {
    /// The part of their time on a core, or in the queue for one; none if they were hardly seen.
    pub computing: Option<f64>,
    /// The part of their time in which they waited for a disk.
    pub blocked: f64,
    /// Bytes that each has read.
    pub read_bytes: f64,
}

/// What was seen of a job as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Joint {
    pub samples_per_second: f64,
    /// The part of the time that the trainer waited for, or took, batches.
    pub stall_share: f64,
    /// Milliseconds that a batch is waited for, that it takes from the loader to the step, and of the step.
    pub wait_ms: f64,
    pub hand_over_ms: f64,
    pub step_ms: f64,
    /// The part of their time in which threads had nothing to do.
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
    /// From seconds by the names of phases.
    pub(super) fn of(seconds: &BTreeMap<&'static str, f64>) -> Self {
        let of = |phase: Phase| seconds.get(phase.name()).copied().unwrap_or_default();
        Self { prepare: of(Phase::Prepare), read: of(Phase::Read), memory: of(Phase::Memory) }
    }
}

/// What kind of job it is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Nature {
    pub is_remote: bool,
    /// Whether bytes come while threads prepare other samples, or have nothing to do.
    pub reads_ahead: bool,
    /// The part of the threads' time that goes to ops in another language.
    pub foreign_share: f64,
    /// Whether threads wait longer for stored bytes than they prepare.
    pub reads_longer: bool,
}

impl From<&Parts> for Nature {
    fn from(parts: &Parts) -> Self {
        Self {
            is_remote: parts.is_remote,
            reads_ahead: parts.reads_ahead,
            foreign_share: parts.foreign_share(),
            reads_longer: parts.read_ms() > parts.prepare_ms,
        }
    }
}
