//! The mean of late of times that many threads book.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Times after which older ones begin to count less.
const MEMORY: u64 = 4096;

/// A mean in which late times count most.
#[derive(Debug, Default)]
pub(super) struct Mean {
    nanos: AtomicU64,
    count: AtomicU64,
}

impl Mean {
    /// Books a time. A time that is booked while another thread halves may be lost, which a mean survives.
    pub(super) fn add(&self, time: Duration) {
        let nanos = self.nanos.fetch_add(time.as_nanos() as u64, Ordering::Relaxed) + time.as_nanos() as u64;
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count >= 2 * MEMORY {
            self.nanos.store(nanos / 2, Ordering::Relaxed);
            self.count.store(count / 2, Ordering::Relaxed);
        }
    }

    /// The mean; zero before the first time.
    pub(super) fn get(&self) -> Duration {
        let nanos = self.nanos.load(Ordering::Relaxed);
        Duration::from_nanos(nanos.checked_div(self.count.load(Ordering::Relaxed)).unwrap_or(0))
    }

    /// Sum and number.
    pub(super) fn parts(&self) -> (u64, u64) {
        (self.nanos.load(Ordering::Relaxed), self.count.load(Ordering::Relaxed))
    }

    /// Goes on from a sum and a number.
    pub(super) fn set(&self, nanos: u64, count: u64) {
        self.nanos.store(nanos, Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
    }
}
