//! What preparer threads did whatever they prepared: they had nothing to do, waited for memory or for a core, or were on one.

use std::time::Duration;

use super::{CoreMeter, CoreTime, Counter};

/// The threads of a loader.
#[derive(Debug, Default)]
pub struct ThreadMeter {
    idle: Counter,
    memory: Counter,
    /// On which cores they were.
    pub cores: CoreMeter,
}

/// What threads did, over all runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTotals {
    /// Waited for something to do.
    pub idle: Duration,
    /// Waited for memory.
    pub memory: Duration,
    /// Ran, or waited for a core.
    pub cores: CoreTime,
}

impl ThreadMeter {
    /// Books time in which a thread had nothing to do.
    pub(crate) fn add_idle(&self, idle: Duration) {
        self.idle.add_time(idle);
    }

    /// Books time in which a thread waited for memory.
    pub(crate) fn add_memory(&self, waited: Duration) {
        self.memory.add_time(waited);
    }

    /// What they did so far.
    pub fn read(&self) -> ThreadTotals {
        ThreadTotals { idle: self.idle.time(), memory: self.memory.time(), cores: self.cores.read() }
    }
}
