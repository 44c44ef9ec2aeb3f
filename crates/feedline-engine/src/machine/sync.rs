//! The synchronisation primitives of `cores.rs`; `loom/` replaces them.

use std::time::{Duration, Instant};

pub(super) use std::sync::atomic::{AtomicBool, Ordering};
pub(super) use std::thread::{Thread, current};

pub(super) use feedline_memory::Mutex;

/// The end of a wait.
#[derive(Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    pub(super) fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    /// Blocks until woken, until the deadline, or spuriously. Returns false if the deadline had already passed.
    pub(super) fn park(&self) -> bool {
        let left = self.0.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            std::thread::park_timeout(left);
        }
        !left.is_zero()
    }
}
