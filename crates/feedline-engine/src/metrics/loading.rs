//! The loading of samples: the stage before the first op.

use std::time::Duration;

use serde::Serialize;

use super::Counter;

/// Time and number of samples that were loaded.
#[derive(Debug, Default)]
pub struct LoadingMeter {
    busy: Counter,
    samples: Counter,
}

/// The loading of samples, from wherever they come: a store, a cache, what was fetched before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LoadingSnapshot {
    /// Time that threads spent on it, reads included.
    pub busy_seconds: f64,
    /// Samples that were loaded.
    pub samples: u64,
}

impl LoadingMeter {
    /// Books samples that took so long together.
    pub fn add(&self, busy: Duration, samples: u64) {
        self.busy.add_time(busy);
        self.samples.add(samples);
    }

    /// The sums.
    pub fn read(&self) -> LoadingSnapshot {
        LoadingSnapshot { busy_seconds: self.busy.seconds(), samples: self.samples.get() }
    }
}
