//! Waiting time by cause.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Counter;

/// A phase in the life of a sample, and so a cause of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The first batch after a start or a jump.
    Start,
    /// Reading from the store.
    Read,
    /// Ops.
    Prepare,
    /// Waiting for room in the memory budget.
    Memory,
}

impl Phase {
    /// All phases, in the order of the counters.
    pub const ALL: [Self; 4] = [Self::Start, Self::Read, Self::Prepare, Self::Memory];

    /// The name in snapshots.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Read => "read",
            Self::Prepare => "prepare",
            Self::Memory => "memory",
        }
    }
}

/// Waiting time by cause.
#[derive(Debug, Default)]
pub struct StallMeter([Counter; Phase::ALL.len()]);

impl StallMeter {
    /// Adds waiting time.
    pub fn add(&self, cause: Phase, waited: Duration) {
        let number = Phase::ALL.iter().position(|phase| *phase == cause).expect("ALL holds every phase");
        self.0[number].add_time(waited);
    }

    /// The sum over all causes.
    pub fn total(&self) -> Duration {
        self.0.iter().map(Counter::time).sum()
    }

    /// Seconds by cause. Contains every cause.
    pub fn seconds(&self) -> BTreeMap<&'static str, f64> {
        Phase::ALL.into_iter().zip(&self.0).map(|(cause, waited)| (cause.name(), waited.seconds())).collect()
    }
}
