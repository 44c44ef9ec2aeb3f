//! A monotonic counter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Whether counters count. Always true, except in a build that measures the cost of counting.
#[cfg(not(feature = "switch-counting"))]
pub(crate) const fn counts() -> bool {
    true
}

#[cfg(feature = "switch-counting")]
pub(crate) use switch::counts;

/// Turns counting off in a build that measures its cost.
#[cfg(feature = "switch-counting")]
pub mod switch {
    use std::sync::atomic::{AtomicBool, Ordering};

    static IS_ON: AtomicBool = AtomicBool::new(true);

    /// Turns counting on or off.
    pub fn set(is_on: bool) {
        IS_ON.store(is_on, Ordering::Relaxed);
    }

    pub(crate) fn counts() -> bool {
        IS_ON.load(Ordering::Relaxed)
    }
}

/// A monotonic counter. People read it; no decision about data depends on it.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds a number.
    pub fn add(&self, number: u64) {
        if counts() {
            self.0.fetch_add(number, Ordering::Relaxed);
        }
    }

    /// Adds a time.
    pub(crate) fn add_time(&self, time: Duration) {
        self.add(time.as_nanos() as u64);
    }

    /// Raises the counter to `number` if that is more, and returns the result. For estimates that must not decrease.
    pub fn raise(&self, number: u64) -> u64 {
        self.0.fetch_max(number, Ordering::Relaxed).max(number)
    }

    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The current value as a time.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.get())
    }

    /// The current value in seconds.
    pub fn seconds(&self) -> f64 {
        self.time().as_secs_f64()
    }
}
