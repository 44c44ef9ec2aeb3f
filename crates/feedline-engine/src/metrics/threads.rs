//! Measures what preparer threads did besides ops: no work, waiting for memory, waiting for a core.

use std::time::Duration;

use super::{CoreMeter, CoreTime, Counter};

/// The threads of a loader.
#[derive(Debug, Default)]
pub struct ThreadMeter {
    idle: Counter,
    memory: Counter,
    /// The cores they ran on.
    pub cores: CoreMeter,
}

/// Totals over all runs of a loader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTotals {
    /// Time without work.
    pub idle: Duration,
    /// Time waiting for memory.
    pub memory: Duration,
    /// Time on a core or waiting for one.
    pub cores: CoreTime,
}

impl ThreadMeter {
    /// Adds time in which a thread had no work.
    pub(crate) fn add_idle(&self, idle: Duration) {
        self.idle.add_time(idle);
    }

    /// Adds time in which a thread waited for memory.
    pub(crate) fn add_memory(&self, waited: Duration) {
        self.memory.add_time(waited);
    }

    /// The totals so far.
    pub fn read(&self) -> ThreadTotals {
        ThreadTotals { idle: self.idle.time(), memory: self.memory.time(), cores: self.cores.read() }
    }
}
