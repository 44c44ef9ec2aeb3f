//! A number that grows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Whether anything is counted. Always, but for a build that shows what counting costs.
#[cfg(not(feature = "switch-counting"))]
pub(crate) const fn counts() -> bool {
    true
}

#[cfg(feature = "switch-counting")]
pub(crate) use switch::counts;

/// The switch of a build that shows what counting costs.
#[cfg(feature = "switch-counting")]
pub mod switch {
    use std::sync::atomic::{AtomicBool, Ordering};

    static IS_ON: AtomicBool = AtomicBool::new(true);

    /// Turns counting off, or on again.
    pub fn set(is_on: bool) {
        IS_ON.store(is_on, Ordering::Relaxed);
    }

    pub(crate) fn counts() -> bool {
        IS_ON.load(Ordering::Relaxed)
    }
}

/// A number that grows: read for people, never for decisions about data.
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

    /// Raises it to a number, if that is more; gives what it is then. For estimates that must not be seen to fall.
    pub fn raise(&self, number: u64) -> u64 {
        self.0.fetch_max(number, Ordering::Relaxed).max(number)
    }

    /// The sum.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The sum of times.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.get())
    }

    /// The same in seconds.
    pub fn seconds(&self) -> f64 {
        self.time().as_secs_f64()
    }
}
