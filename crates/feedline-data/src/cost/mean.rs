//! A moving average of times that many threads add to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of times after which older ones start to count less.
const WINDOW_SAMPLES: u64 = 4096;

/// A moving average: recent times count most.
#[derive(Debug, Default)]
pub(super) struct Mean {
    nanos: AtomicU64,
    count: AtomicU64,
}

impl Mean {
    /// Adds `added` times with this sum. If another thread halves the sums at the same moment, they may be lost. An average
    /// tolerates that.
    pub(super) fn add(&self, sum: Duration, added: u64) {
        let nanos = self.nanos.fetch_add(sum.as_nanos() as u64, Ordering::Relaxed) + sum.as_nanos() as u64;
        let count = self.count.fetch_add(added, Ordering::Relaxed) + added;
        if count >= 2 * WINDOW_SAMPLES {
            // Halving both keeps the average and gives new times more weight.
            self.nanos.store(nanos / 2, Ordering::Relaxed);
            self.count.store(count / 2, Ordering::Relaxed);
        }
    }

    /// The average. Zero before the first time.
    pub(super) fn get(&self) -> Duration {
        let nanos = self.nanos.load(Ordering::Relaxed);
        Duration::from_nanos(nanos.checked_div(self.count.load(Ordering::Relaxed)).unwrap_or(0))
    }

    /// Sum and number.
    pub(super) fn parts(&self) -> (u64, u64) {
        (self.nanos.load(Ordering::Relaxed), self.count.load(Ordering::Relaxed))
    }

    /// Continues from a sum and a number.
    pub(super) fn set(&self, nanos: u64, count: u64) {
        self.nanos.store(nanos, Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
    }
}
