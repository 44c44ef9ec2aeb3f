//! The batch log of a loader: when each batch was asked for, ready and received, and how long the trainer worked on it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use feedline_core::doctor::BatchTime;

/// Batches that are kept.
const MOST_BATCHES: usize = 1 << 14;

/// Times of the latest batches. Each thread that takes batches is a trainer of its own.
#[derive(Default)]
pub struct BatchLog(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    batches: VecDeque<BatchTime>,
    /// The batch that a thread works on, since when.
    under_work: HashMap<ThreadId, (Instant, BatchTime)>,
}

impl BatchLog {
    /// A trainer asks for a batch, so it is done with the last one.
    pub fn asked(&self, now: Instant) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, batch)) = kept.under_work.remove(&thread::current().id()) {
            if kept.batches.len() == MOST_BATCHES {
                kept.batches.pop_front();
            }
            kept.batches.push_back(BatchTime { step_ms: ms(now - since), ..batch });
        }
    }

    /// It has received it.
    pub fn received(&self, iteration: u64, samples: u64, [asked, ready, received]: [Instant; 3]) {
        let (wait_ms, hand_over_ms) = (ms(ready - asked), ms(received - ready));
        let batch = BatchTime { epoch: iteration, wait_ms, hand_over_ms, step_ms: 0.0, samples };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.under_work.insert(thread::current().id(), (received, batch));
    }

    /// All that is kept, in the order in which work on it was done.
    pub fn batches(&self) -> Vec<BatchTime> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).batches.iter().copied().collect()
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
