//! The batch log of a loader: when each batch was asked for, ready and received, and how long the trainer worked on it.

use std::collections::{HashMap, VecDeque};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use feedline_diagnose::doctor::BatchTime;
use feedline_memory::Mutex;

/// Batches that are kept.
const MAX_BATCHES: usize = 1 << 14;

/// Times of the latest batches. Each thread that takes batches is a trainer of its own.
#[derive(Default)]
pub(crate) struct BatchLog(Mutex<LogState>);

#[derive(Default)]
struct LogState {
    batches: VecDeque<BatchTime>,
    /// Milliseconds of all batches, of those that are not kept too.
    total_ms: f64,
    /// The batch that a thread works on, since when.
    under_work: HashMap<ThreadId, (Instant, BatchTime)>,
}

impl BatchLog {
    /// A trainer asks for a batch, so it is done with the last one.
    pub(crate) fn asked(&self, iteration: u64, now: Instant) {
        let mut kept = self.0.lock();
        let last = kept.under_work.remove(&thread::current().id());
        // What comes behind an iteration that was left early is no step.
        if let Some((since, batch)) = last.filter(|(_, batch)| batch.epoch == iteration) {
            if kept.batches.len() == MAX_BATCHES {
                kept.batches.pop_front();
            }
            let batch = BatchTime { step_ms: ms(now - since), ..batch };
            kept.total_ms += batch.total_ms();
            kept.batches.push_back(batch);
        }
    }

    /// It has received it.
    pub(crate) fn received(&self, iteration: u64, samples: u64, [asked, ready, received]: [Instant; 3]) {
        let (wait_ms, hand_over_ms) = (ms(ready - asked), ms(received - ready));
        let batch = BatchTime { epoch: iteration, wait_ms, hand_over_ms, step_ms: 0.0, samples };
        let mut kept = self.0.lock();
        kept.under_work.insert(thread::current().id(), (received, batch));
    }

    /// All that is kept, in the order in which work on it was done, and the seconds of all that ever was.
    pub(crate) fn batches(&self) -> (Vec<BatchTime>, f64) {
        let kept = self.0.lock();
        (kept.batches.iter().copied().collect(), kept.total_ms / 1e3)
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
