//! The batch log of a loader: when each batch was requested, ready and received, and how long the training step took.

use std::collections::{HashMap, VecDeque};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use feedline_diagnose::doctor::BatchTime;
use feedline_memory::Mutex;

/// Number of batches to keep.
const MAX_BATCHES: usize = 1 << 14;

/// The times of the latest batches. Each thread that takes batches counts as a separate trainer.
#[derive(Default)]
pub(crate) struct BatchLog(Mutex<LogState>);

#[derive(Default)]
struct LogState {
    batches: VecDeque<BatchTime>,
    /// Milliseconds of all batches, including those that are no longer kept.
    total_ms: f64,
    /// The current batch of each thread, and when it was received.
    current: HashMap<ThreadId, (Instant, BatchTime)>,
}

impl BatchLog {
    /// Records that a trainer requests a batch. So it has finished its step on the last one.
    pub(crate) fn requested(&self, iteration: u64, now: Instant) {
        let mut state = self.0.lock();
        // Keyed by thread, because several threads may take batches of one loader.
        let last = state.current.remove(&thread::current().id());
        // The time after an iteration that was left early is not a step.
        if let Some((since, batch)) = last.filter(|(_, batch)| batch.epoch == iteration) {
            if state.batches.len() == MAX_BATCHES {
                state.batches.pop_front();
            }
            let batch = BatchTime { step_ms: ms(now - since), ..batch };
            state.total_ms += batch.total_ms();
            state.batches.push_back(batch);
        }
    }

    /// Records that a trainer has received a batch.
    pub(crate) fn received(&self, iteration: u64, samples: u64, [asked, ready, received]: [Instant; 3]) {
        let (wait_ms, hand_over_ms) = (ms(ready - asked), ms(received - ready));
        let batch = BatchTime { epoch: iteration, wait_ms, hand_over_ms, step_ms: 0.0, samples };
        let mut state = self.0.lock();
        state.current.insert(thread::current().id(), (received, batch));
    }

    /// The kept batches, in the order in which their steps ended, and the total seconds of all batches.
    pub(crate) fn batches(&self) -> (Vec<BatchTime>, f64) {
        let state = self.0.lock();
        (state.batches.iter().copied().collect(), state.total_ms / 1e3)
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
