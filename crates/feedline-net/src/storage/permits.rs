//! A fixed number of permits for work that needs much memory.

use std::sync::Arc;
use std::time::Duration;

use feedline_memory::{Condvar, Mutex};

/// Interval at which a waiting thread checks whether it is still wanted.
const POLL: Duration = Duration::from_millis(100);

/// The permits that are free.
#[derive(Debug)]
pub(super) struct Permits {
    free: Mutex<usize>,
    changed: Condvar,
}

/// One permit, returned when dropped.
#[derive(Debug)]
pub(super) struct Permit(Arc<Permits>);

/// Admission of a request that may need a permit.
#[derive(Debug)]
#[expect(dead_code, reason = "a permit is there to be kept")]
pub(super) enum Admission {
    Free,
    Permitted(Permit),
}

impl Permits {
    pub(super) fn new(count: usize) -> Self {
        Self { free: Mutex::new(count), changed: Condvar::new() }
    }

    /// Waits for a permit. `None` once it is not wanted any more.
    pub(super) fn take(self: &Arc<Self>, is_wanted: impl Fn() -> bool) -> Option<Permit> {
        let mut free = self.free.lock();
        while *free == 0 {
            // `is_wanted` takes another lock, so this one is released meanwhile.
            drop(free);
            if !is_wanted() {
                return None;
            }
            free = self.free.lock();
            if *free == 0 {
                self.changed.wait_for(&mut free, POLL);
            }
        }
        *free -= 1;
        Some(Permit(Arc::clone(self)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.0.free.lock() += 1;
        self.0.changed.notify_one();
    }
}
