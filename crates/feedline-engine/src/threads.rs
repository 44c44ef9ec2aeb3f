//! Starts threads and joins them within a time limit.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use feedline_memory::{Condvar, Mutex};

/// Threads of one owner, and the number of threads that still run.
#[derive(Debug)]
pub(crate) struct Threads {
    handles: Mutex<Vec<JoinHandle<()>>>,
    alive: Arc<Alive>,
}

#[derive(Debug, Default)]
struct Alive {
    count: Mutex<usize>,
    changed: Condvar,
}

/// Decrements the count when its thread ends, also by a panic.
struct Ending(Arc<Alive>);

impl Drop for Ending {
    fn drop(&mut self) {
        *self.0.count.lock() -= 1;
        self.0.changed.notify_all();
    }
}

impl Threads {
    pub(crate) fn new() -> Self {
        Self { handles: Mutex::default(), alive: Arc::default() }
    }

    /// Starts a thread. Also joins threads that have ended, because their stacks are freed only then.
    pub(crate) fn start(&self, name: String, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        *self.alive.count.lock() += 1;
        // Made before the spawn: if the spawn fails, dropping the closure corrects the count.
        let ending = Ending(Arc::clone(&self.alive));
        let handle = thread::Builder::new().name(name).spawn(move || {
            let _ending = ending;
            body();
        })?;
        let mut handles = self.handles.lock();
        // Join after the lock is released. These threads have ended, so joining does not block.
        let ended: Vec<_> = handles.extract_if(.., |handle| handle.is_finished()).collect();
        handles.push(handle);
        drop(handles);
        ended.into_iter().for_each(join);
        Ok(())
    }

    /// Waits up to `limit` for all threads to end. Returns how many still run; these are left to end alone.
    pub(crate) fn join_within(&self, limit: Duration) -> usize {
        let deadline = Instant::now() + limit;
        let mut count = self.alive.count.lock();
        while *count > 0 {
            let now = Instant::now();
            if now >= deadline {
                break;
            }
            self.alive.changed.wait_for(&mut count, deadline - now);
        }
        let left = *count;
        drop(count);
        let handles = std::mem::take(&mut *self.handles.lock());
        // Joining a thread that still runs could block without limit. Its handle is dropped instead, which detaches it.
        if left == 0 {
            handles.into_iter().for_each(join);
        }
        left
    }
}

fn join(handle: JoinHandle<()>) {
    if handle.join().is_err() {
        tracing::error!("a preparer thread panicked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn law_7_threads_that_have_ended_are_not_kept() {
        let threads = Threads::new();
        for number in 0..20 {
            threads.start(format!("test-{number}"), || {}).unwrap();
            while !threads.handles.lock().iter().all(JoinHandle::is_finished) {
                thread::yield_now();
            }
        }
        assert_eq!(threads.handles.lock().len(), 1);
        assert_eq!(threads.join_within(Duration::from_mins(1)), 0);
    }
}
