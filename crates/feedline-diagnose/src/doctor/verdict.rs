//! What bounds a job.
//!
//! In: what its resources allow, what it reached, and, where it stayed below, what it reaches with more memory. Out: one bound.

use std::fmt;

use feedline_data::cost::{Resource, Times};
use serde::{Deserialize, Serialize};

/// Below this part of what the resources allow, something else holds the job back.
const FALLS_SHORT: f64 = 0.92;
/// The part of their time in which threads have nothing to do where slow samples are the bound.
const IDLE: f64 = 0.05;
/// The part of its time that the consumer has to wait before it waits for something.
const WAITS: f64 = 0.05;
/// What more memory has to gain before its lack is the bound.
const GAINS: f64 = 1.07;

/// What bounds a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The accelerator: loading keeps up.
    Step,
    /// Preparer threads, or the cores that they run on.
    Prepare,
    /// The store.
    Read,
    /// The link to another machine.
    Network,
    /// Slow samples that others have to wait for.
    HeadOfLine,
    /// Ops in Python.
    Python,
    /// The memory budget.
    Memory,
    /// The way of a batch from the loader to the step.
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

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Step => "the step: loading keeps up with it",
            Self::Prepare => "preparing: the threads, or the cores that they run on, can do no more",
            Self::Read => "reading: the store gives no more",
            Self::Network => "the network: the link to the data is full",
            Self::HeadOfLine => "slow samples: others are ready and wait behind them",
            Self::Python => "Python: ops in Python run one at a time",
            Self::Memory => "memory: the budget is too small to prepare enough at once",
            Self::HandOver => "the hand-over: batches take longer from the loader to the step than to prepare",
        })
    }
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
    /// Whether it waited for stored bytes rather than for ops.
    pub waits_for_reads: bool,
}

impl Joint {
    /// Whether the trainer takes longer to get hold of a batch that is ready than it waits for it, or works on it.
    fn is_slow_to_take(&self) -> bool {
        self.hand_over_ms > self.wait_ms && self.hand_over_ms > self.step_ms.max(1e-3)
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

/// Says what bounds a job; `with_memory` is what it reaches with a larger budget, where that was tried.
pub(super) fn bound(times: &Times, nature: Nature, joint: &Joint, with_memory: Option<f64>) -> Bound {
    if falls_short(times, joint) {
        let gains_by_memory = with_memory.is_some_and(|rate| rate > GAINS * joint.samples_per_second);
        if gains_by_memory {
            return Bound::Memory;
        }
        if joint.is_slow_to_take() {
            return Bound::HandOver;
        }
        if nature.reads_ahead && joint.waits_for_reads && joint.stall_share > WAITS {
            return if nature.is_remote { Bound::Network } else { Bound::Read };
        }
        // The consumer waits, and threads have nothing to do: what it waits for cannot be divided among them.
        if joint.idle_share > IDLE && joint.stall_share > WAITS {
            return Bound::HeadOfLine;
        }
    }
    match Bound::from(times.bound()) {
        Bound::Step if joint.is_slow_to_take() => Bound::HandOver,
        Bound::Prepare if nature.reads_longer && nature.is_remote => Bound::Network,
        Bound::Prepare if nature.reads_longer => Bound::Read,
        Bound::Prepare if nature.foreign_share > 0.5 => Bound::Python,
        other => other,
    }
}

/// Whether a job stays below what its resources allow.
pub(super) fn falls_short(times: &Times, joint: &Joint) -> bool {
    joint.samples_per_second < FALLS_SHORT * times.samples_per_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of resources that allow so many samples a second.
    fn allowing(step: f64, prepare: f64, read: f64) -> Times {
        Times { step: 1.0 / step, prepare: 1.0 / prepare, read: 1.0 / read, ..Times::default() }
    }

    const LOCAL: Nature = Nature { is_remote: false, reads_ahead: false, foreign_share: 0.0, reads_longer: false };

    fn joint(samples_per_second: f64) -> Joint {
        Joint { samples_per_second, step_ms: 10.0, hand_over_ms: 0.1, ..Joint::default() }
    }

    #[test]
    fn the_resource_that_allows_least_is_the_bound_if_the_job_reaches_what_it_allows() {
        let verdict = |all: Times, reached| bound(&all, LOCAL, &joint(reached), None);
        assert_eq!(verdict(allowing(100.0, 200.0, 300.0), 99.0), Bound::Step);
        assert_eq!(verdict(allowing(300.0, 200.0, 500.0), 195.0), Bound::Prepare);
        assert_eq!(verdict(allowing(300.0, 200.0, 80.0), 79.0), Bound::Read);
        let remote = Times { network: 1.0 / 80.0, ..allowing(300.0, 200.0, 500.0) };
        assert_eq!(bound(&remote, Nature { is_remote: true, ..LOCAL }, &joint(79.0), None), Bound::Network);
        let foreign =
            bound(&allowing(300.0, 200.0, 500.0), Nature { foreign_share: 0.9, ..LOCAL }, &joint(195.0), None);
        assert_eq!(foreign, Bound::Python);
        let waits = bound(&allowing(300.0, 200.0, 500.0), Nature { reads_longer: true, ..LOCAL }, &joint(195.0), None);
        assert_eq!(waits, Bound::Read, "threads wait for the store, though it could give more to further ones");
    }

    #[test]
    fn a_job_that_stays_below_lacks_memory_or_waits_for_slow_samples() {
        let all = allowing(300.0, 200.0, 500.0);
        assert_eq!(bound(&all, LOCAL, &joint(120.0), Some(170.0)), Bound::Memory);
        let idle = Joint { idle_share: 0.4, stall_share: 0.3, ..joint(120.0) };
        assert_eq!(bound(&all, LOCAL, &idle, Some(121.0)), Bound::HeadOfLine);
        let slow_step = Joint { idle_share: 0.4, ..joint(85.0) };
        assert_eq!(bound(&allowing(100.0, 200.0, 500.0), LOCAL, &slow_step, None), Bound::Step, "nobody waits");
        assert_eq!(bound(&all, LOCAL, &joint(120.0), None), Bound::Prepare, "all threads were busy");
        let link = Nature { is_remote: true, reads_ahead: true, ..LOCAL };
        let late = Joint { waits_for_reads: true, ..idle };
        assert_eq!(bound(&all, link, &late, None), Bound::Network, "threads are idle because nothing comes");
        let slow_hand_over = Joint { hand_over_ms: 40.0, idle_share: 0.8, stall_share: 0.3, ..joint(120.0) };
        assert_eq!(bound(&all, LOCAL, &slow_hand_over, Some(121.0)), Bound::HandOver);
    }

    #[test]
    fn bounds_have_the_names_that_documents_use() {
        let names: Vec<String> = Bound::ALL.iter().map(|bound| serde_json::to_string(bound).unwrap()).collect();
        let told = ["step", "prepare", "read", "network", "head_of_line", "python", "memory", "hand_over"];
        assert_eq!(names, told.map(|name| format!("{name:?}")));
    }
}
