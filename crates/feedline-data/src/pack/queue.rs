//! Passes samples from workers to the writer in order, and blocks workers that are too far ahead.
//!
//! Always true: at most [`MAX_BYTES`] are queued, plus the sample that the writer needs next. For that one there is always room.

use std::collections::BTreeMap;
use std::time::Duration;

use feedline_memory::{Condvar, Mutex};

use super::sample::ReadySample;
use super::summary::PackError;
use crate::memory::Cancel;

/// Upper limit of queued bytes.
const MAX_BYTES: usize = 256 << 20;
/// Upper limit of queued samples.
const MAX_SAMPLES: usize = 4096;
/// Interval at which a blocked worker checks for cancellation.
const CANCEL_POLL: Duration = Duration::from_millis(50);

/// Samples between workers and writer.
#[derive(Debug)]
pub(super) struct PackQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
    cancel: Cancel,
}

#[derive(Debug)]
struct QueueState {
    /// The next sample for a worker.
    next: u64,
    end: u64,
    /// The sample that the writer needs.
    due: u64,
    ready: BTreeMap<u64, Result<ReadySample, PackError>>,
    bytes: usize,
}

impl PackQueue {
    /// A queue of the samples `start..end`.
    pub(super) fn new(start: u64, end: u64, cancel: Cancel) -> Self {
        let state = QueueState { next: start, end, due: start, ready: BTreeMap::new(), bytes: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new(), cancel }
    }

    /// The next sample to prepare. `None` at the end, or once cancelled.
    pub(super) fn claim(&self) -> Option<u64> {
        let mut state = self.state.lock();
        if self.cancel.is_cancelled() || state.next >= state.end {
            return None;
        }
        state.next += 1;
        Some(state.next - 1)
    }

    /// Adds a sample once there is room.
    pub(super) fn put(&self, number: u64, made: Result<ReadySample, PackError>) {
        let bytes = made.as_ref().map_or(0, ReadySample::memory_bytes);
        let mut state = self.state.lock();
        // The sample that the writer waits for is always accepted. Otherwise a full queue of later samples would never empty.
        while number != state.due && (state.bytes + bytes > MAX_BYTES || state.ready.len() >= MAX_SAMPLES) {
            if self.cancel.is_cancelled() {
                return;
            }
            self.changed.wait_for(&mut state, CANCEL_POLL);
        }
        state.bytes += bytes;
        state.ready.insert(number, made);
        self.changed.notify_all();
    }

    /// The sample that the writer needs, if it arrives within `limit`.
    pub(super) fn take_within(&self, limit: Duration) -> Option<Result<ReadySample, PackError>> {
        let mut state = self.state.lock();
        // One wait without a loop: the caller checks for cancellation and calls again.
        if !state.ready.contains_key(&state.due) {
            self.changed.wait_for(&mut state, limit);
        }
        let due = state.due;
        let made = state.ready.remove(&due)?;
        state.due += 1;
        state.bytes -= made.as_ref().map_or(0, ReadySample::memory_bytes);
        self.changed.notify_all();
        Some(made)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::run::StopAtEnd;
    use super::super::sample::ReadyMember;
    use super::*;

    fn sample(number: u64, bytes: usize) -> ReadySample {
        let bytes = vec![0; bytes];
        let member = ReadyMember { extension: String::new(), bytes, width: 0, height: 0, record: Vec::new() };
        ReadySample { name: number.to_string(), members: vec![member], ..ReadySample::default() }
    }

    #[test]
    fn samples_come_in_order_for_any_worker_and_any_size() {
        let each = MAX_BYTES / 3;
        let cancel = Cancel::default();
        let queue = PackQueue::new(3, 60, cancel.clone());
        thread::scope(|scope| {
            // A failed assertion must end the workers too.
            let _stop = StopAtEnd(&cancel);
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Some(number) = queue.claim() {
                        queue.put(number, Ok(sample(number, each)));
                    }
                });
            }
            for number in 3..60 {
                let mut waited = 0;
                let made = loop {
                    if let Some(made) = queue.take_within(CANCEL_POLL) {
                        break made.unwrap();
                    }
                    waited += 1;
                    assert!(waited < 1000, "sample {number} does not come");
                };
                assert_eq!(made.name, number.to_string());
                let bytes = queue.state.lock().bytes;
                assert!(bytes <= MAX_BYTES + each, "{bytes} bytes wait");
            }
        });
        assert!(queue.claim().is_none());
    }

    #[test]
    fn workers_that_wait_for_room_end_when_the_work_is_cancelled() {
        let cancel = Cancel::default();
        let queue = PackQueue::new(0, 10, cancel.clone());
        thread::scope(|scope| {
            scope.spawn(|| queue.put(9, Ok(sample(9, MAX_BYTES + 1))));
            cancel.cancel();
        });
        assert!(queue.claim().is_none());
    }
}
