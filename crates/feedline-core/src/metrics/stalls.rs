//! Waiting, by what it was for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a sample spends its time on, and so what a consumer may wait for.
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

/// Time that somebody waited, by cause.
#[derive(Debug, Default)]
pub struct StallMeter([AtomicU64; Phase::ALL.len()]);

impl StallMeter {
    /// Books time that was waited.
    pub fn add(&self, cause: Phase, waited: Duration) {
        let number = Phase::ALL.iter().position(|phase| *phase == cause).expect("ALL holds every phase");
        self.0[number].fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
    }

    /// All of it.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.0.iter().map(|nanos| nanos.load(Ordering::Relaxed)).sum())
    }

    /// Seconds by the name of the cause; every cause is there.
    pub fn seconds(&self) -> BTreeMap<&'static str, f64> {
        let seconds = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Relaxed)).as_secs_f64();
        Phase::ALL.into_iter().zip(&self.0).map(|(cause, nanos)| (cause.name(), seconds(nanos))).collect()
    }
}
