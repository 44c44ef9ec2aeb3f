//! What the crates call `sync`, by loom.

use std::sync::atomic::AtomicBool as Flag;
use std::time::Duration;

pub use loom::sync::atomic::{AtomicBool, Ordering};
pub use loom::sync::{Arc, MutexGuard};
pub use loom::thread::{Thread, current};

/// Loom's mutex with the interface of `feedline_memory::Mutex`: no lock is poisoned.
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

/// Whether time passes: threads that wait do so until they are woken, or until any moment.
static TIME_PASSES: Flag = Flag::new(false);

/// Says whether time passes. Not a part of what is checked.
pub fn let_time_pass(passes: bool) {
    TIME_PASSES.store(passes, std::sync::atomic::Ordering::Relaxed);
}

/// Until when a thread waits.
#[derive(Debug)]
pub struct Deadline(Flag);

impl Deadline {
    /// After any time.
    pub fn after(_: Duration) -> Self {
        Self(Flag::new(false))
    }

    /// Waits until others may have done anything, since a system may wake threads for no reason; after that until it is woken or,
    /// if time passes, not at all: `false` says that it is over.
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
