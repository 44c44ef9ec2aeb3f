//! The loading of samples: the stage before the first op.

use std::time::Duration;

use serde::Serialize;

use super::Counter;

/// Measures the loading of samples.
#[derive(Debug, Default)]
pub struct LoadingMeter {
    busy: Counter,
    samples: Counter,
}

/// Loading of samples, from any origin: a store, a cache, or bytes fetched ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LoadingSnapshot {
    /// Time of threads, including reads.
    pub busy_seconds: f64,
    /// Number of loaded samples.
    pub samples: u64,
}

impl LoadingMeter {
    /// Adds `samples` samples that took `busy` together.
    pub fn add(&self, busy: Duration, samples: u64) {
        self.busy.add_time(busy);
        self.samples.add(samples);
    }

    /// The sums.
    pub fn read(&self) -> LoadingSnapshot {
        LoadingSnapshot { busy_seconds: self.busy.seconds(), samples: self.samples.get() }
    }
}
