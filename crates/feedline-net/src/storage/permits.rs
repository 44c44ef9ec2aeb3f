//! A fixed number of permits for something that takes much memory.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Interval at which one who waits checks whether it still wants to.
const POLL: Duration = Duration::from_millis(100);

/// The permits that are free.
#[derive(Debug)]
pub(super) struct Permits {
    free: Mutex<usize>,
    changed: Condvar,
}

/// One permit, given back when dropped.
#[derive(Debug)]
pub(super) struct Permit(Arc<Permits>);

/// Leave for something that may need a permit.
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

    /// Waits for a permit; `None` if it is not wanted any more.
    pub(super) fn take(self: &Arc<Self>, is_wanted: impl Fn() -> bool) -> Option<Permit> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            drop(free);
            if !is_wanted() {
                return None;
            }
            free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            if *free == 0 {
                free = self.changed.wait_timeout(free, POLL).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        *free -= 1;
        Some(Permit(Arc::clone(self)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.changed.notify_one();
    }
}
