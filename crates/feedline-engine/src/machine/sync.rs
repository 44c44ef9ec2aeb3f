//! The primitives that cores are shared with; `loom/` puts others in their place.

use std::time::{Duration, Instant};

pub(super) use std::sync::atomic::{AtomicBool, Ordering};
pub(super) use std::thread::{Thread, current};

pub(super) use parking_lot::Mutex;

/// Until when a thread waits.
#[derive(Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    /// After `time`.
    pub(super) fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    /// Waits until it is woken, the time is over or the system says so; `false` if it was over before.
    pub(super) fn park(&self) -> bool {
        let left = self.0.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            std::thread::park_timeout(left);
        }
        !left.is_zero()
    }
}
