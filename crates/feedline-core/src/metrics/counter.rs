//! A number that grows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Whether anything is counted: but for a build that shows what counting costs.
pub(crate) const COUNTS: bool = !cfg!(feature = "uncounted");

/// A number that grows: read for people, never for decisions about data.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds a number.
    pub fn add(&self, number: u64) {
        if COUNTS {
            self.0.fetch_add(number, Ordering::Relaxed);
        }
    }

    /// Adds a time.
    pub fn add_time(&self, time: Duration) {
        self.add(time.as_nanos() as u64);
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
