//! The module `sync` of the crates, built on loom.

use std::sync::atomic::AtomicBool as Flag;
use std::time::Duration;

pub use loom::sync::atomic::{AtomicBool, Ordering};
pub use loom::sync::{Arc, MutexGuard};
pub use loom::thread::{Thread, current};

/// Loom's mutex with the interface of `feedline_memory::Mutex`, which has no poisoning.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex around a value.
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    /// Waits until no other thread holds it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

/// Whether waits can time out. If not, a thread waits until it is woken.
static TIME_PASSES: Flag = Flag::new(false);

/// Sets whether waits can time out. Loom does not track this flag.
pub fn let_time_pass(passes: bool) {
    TIME_PASSES.store(passes, std::sync::atomic::Ordering::Relaxed);
}

/// The deadline of a wait.
#[derive(Debug)]
pub struct Deadline(Flag);

impl Deadline {
    /// A deadline. The duration is ignored: loom has no clock.
    pub fn after(_: Duration) -> Self {
        Self(Flag::new(false))
    }

    /// Returns after other threads had a chance to run, like a spurious wake-up. From the second call on, it waits until the thread
    /// is woken, or returns `false` if waits can time out.
    pub fn park(&self) -> bool {
        if !self.0.swap(true, std::sync::atomic::Ordering::Relaxed) {
            loom::thread::yield_now();
            return true;
        }
        if TIME_PASSES.load(std::sync::atomic::Ordering::Relaxed) {
            return false;
        }
        loom::thread::park();
        true
    }
}
