//! The loading of samples: the stage before the first op.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

/// Time and number of samples that were loaded.
#[derive(Debug, Default)]
pub struct LoadingMeter {
    busy_nanos: AtomicU64,
    samples: AtomicU64,
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
    /// Books a sample.
    pub fn add(&self, busy: Duration) {
        self.busy_nanos.fetch_add(busy.as_nanos() as u64, Ordering::Relaxed);
        self.samples.fetch_add(1, Ordering::Relaxed);
    }

    /// The sums.
    pub fn read(&self) -> LoadingSnapshot {
        let busy = Duration::from_nanos(self.busy_nanos.load(Ordering::Relaxed));
        LoadingSnapshot { busy_seconds: busy.as_secs_f64(), samples: self.samples.load(Ordering::Relaxed) }
    }
}
