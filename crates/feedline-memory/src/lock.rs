//! The standard library's locks without poisoning.
//!
//! A thread that panics while it holds a lock leaves a value that is still consistent: every change of shared state is a few
//! assignments. So a lock is simply released. The interface is that of `parking_lot`, whose locks cannot be used here: they keep
//! waiting threads in a table of the process, which is invalid in a forked child (ADR 40).

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// A mutual exclusion lock.
///
/// ```
/// let count = feedline_memory::Mutex::new(1);
/// *count.lock() += 1;
/// assert_eq!(count.into_inner(), 2);
/// ```
#[derive(Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

/// A locked [`Mutex`]. Dropping it releases the lock.
pub struct MutexGuard<'a, T>(Option<std::sync::MutexGuard<'a, T>>);

/// A lock for many readers or one writer.
///
/// ```
/// let name = feedline_memory::RwLock::new("a");
/// *name.write() = "b";
/// assert_eq!(*name.read(), "b");
/// ```
#[derive(Default)]
pub struct RwLock<T>(std::sync::RwLock<T>);

/// Blocks threads until another thread has changed the value of a [`Mutex`].
///
/// ```
/// # use std::time::Duration;
/// let (is_ready, changed) = (feedline_memory::Mutex::new(false), feedline_memory::Condvar::new());
/// let mut ready = is_ready.lock();
/// changed.wait_for(&mut ready, Duration::from_millis(1));
/// assert!(!*ready);
/// ```
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl<T> Mutex<T> {
    /// A mutex around a value.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(MutexGuard(Some(guard))),
            Err(TryLockError::Poisoned(poisoned)) => Some(MutexGuard(Some(poisoned.into_inner()))),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value, without locking: nobody else has a reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, without the lock.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("a guard is empty only inside Condvar")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("a guard is empty only inside Condvar")
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(f)
    }
}

impl<T> RwLock<T> {
    /// A lock around a value.
    pub const fn new(value: T) -> Self {
        Self(std::sync::RwLock::new(value))
    }

    /// Waits until no writer holds the lock.
    pub fn read(&self) -> std::sync::RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody holds the lock.
    pub fn write(&self) -> std::sync::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Condvar {
    /// A condition variable without waiting threads.
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Releases the lock, waits for a notification or a spurious wake-up, and locks again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if let Some(held) = guard.0.take() {
            guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// The same, for at most `time`.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) {
        if let Some(held) = guard.0.take() {
            guard.0 = Some(self.0.wait_timeout(held, time).unwrap_or_else(PoisonError::into_inner).0);
        }
    }

    /// The same, until `deadline` at the latest.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, deadline: Instant) {
        self.wait_for(guard, deadline.saturating_duration_since(Instant::now()));
    }

    /// Waits while a condition holds, for at most `time`.
    pub fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        time: Duration,
    ) {
        if let Some(held) = guard.0.take() {
            let waited = self.0.wait_timeout_while(held, time, condition);
            guard.0 = Some(waited.unwrap_or_else(PoisonError::into_inner).0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_releases_its_lock() {
        let count = Mutex::new(0);
        std::thread::scope(|scope| {
            let panicking = scope.spawn(|| {
                *count.lock() += 1;
                let _held = count.lock();
                panic!("on purpose");
            });
            assert!(panicking.join().is_err());
        });
        assert_eq!(*count.lock(), 1);
        assert_eq!(count.try_lock().map(|count| *count), Some(1));
    }

    #[test]
    fn a_wait_ends_with_the_change() {
        let (is_ready, changed) = (Mutex::new(false), Condvar::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *is_ready.lock() = true;
                changed.notify_all();
            });
            let mut ready = is_ready.lock();
            while !*ready {
                changed.wait(&mut ready);
            }
        });
        let mut ready = is_ready.lock();
        changed.wait_while_for(&mut ready, |ready| *ready, Duration::from_millis(1));
        assert!(*ready, "the time is over");
    }
}
