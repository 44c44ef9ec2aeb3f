//! The progress of a loader's iterations.

use std::sync::Arc;

use feedline_data::batch::Batch;
use feedline_data::memory::Iterating;
use feedline_order::Epoch;

use super::deliverer::Deliverer;
use crate::error::Error;
use crate::state::Received;

/// The state under a loader's lock.
#[derive(Debug)]
pub(super) struct Progress {
    pub run: Option<Arc<dyn Deliverer>>,
    /// Whether batches are prepared here because the node was lost.
    pub has_lost_node: bool,
    /// Whether the stream was attached to a node.
    pub was_attached: bool,
    pub received: Received,
    pub iteration: Iteration,
    pub stage: Stage,
    pub is_closed: bool,
    /// While it exists, other loaders of the process leave this one its share of the machine.
    pub iterating: Option<Iterating>,
}

/// The number of an iteration: one pass of a `for` loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Iteration(pub(super) u64);

impl Iteration {
    /// Its number, for callers in other languages.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The iteration with this number.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No batch of the current epoch has been received in this iteration.
    Fresh,
    /// Some batches of the epoch have been received.
    Under,
    /// All batches of the epoch have been received.
    Ended,
    /// The next batch could not be delivered.
    Stuck,
}

/// The result of a wait.
#[derive(Debug)]
pub enum Next {
    /// A batch.
    Batch(Box<Batch>),
    /// The epoch has ended.
    End,
    /// Nothing yet. Call again.
    NotYet,
}

impl Progress {
    pub(super) fn check(&self, iteration: Iteration) -> Result<(), Error> {
        match iteration {
            _ if self.is_closed => Err(Error::Closed),
            iteration if self.iteration == iteration => Ok(()),
            _ => Err(Error::Superseded),
        }
    }

    pub(super) fn upcoming_epoch(&self) -> Epoch {
        // After a `break` in mid-epoch the next iteration runs the next epoch.
        Epoch(self.received.epoch().0 + u64::from(self.stage == Stage::Under))
    }

    /// Continues at the start of an epoch.
    pub(super) fn jump(&mut self, epoch: Epoch) {
        let mut received = self.received.clone();
        received.jump(epoch);
        self.go_on_from(received);
    }

    pub(super) fn go_on_from(&mut self, received: Received) {
        self.stage = Stage::Fresh;
        self.iterating = None;
        if let Some(run) = &self.run {
            run.seek(&received);
        }
        self.received = received;
    }
}
