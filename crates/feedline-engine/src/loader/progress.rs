//! How far the iterations of a loader have come.

use std::sync::Arc;

use feedline_data::batch::Batch;
use feedline_data::memory::Iterating;
use feedline_order::Epoch;

use super::deliverer::Deliverer;
use crate::error::Error;
use crate::state::Received;

/// What a loader keeps under its lock.
#[derive(Debug)]
pub(super) struct Progress {
    pub run: Option<Arc<dyn Deliverer>>,
    /// Whether batches are prepared here though there was a node.
    pub has_lost_node: bool,
    /// Whether there was a node.
    pub was_attached: bool,
    pub received: Received,
    pub iteration: Iteration,
    pub stage: Stage,
    pub is_closed: bool,
    /// While it iterates, other loaders of the process leave it its part of the machine.
    pub iterating: Option<Iterating>,
}

/// The number of an iteration: one pass of a `for` loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Iteration(pub(super) u64);

impl Iteration {
    /// Its number, for callers that cannot hold the type.
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
    /// Some have.
    Under,
    /// All have.
    Ended,
    /// The next batch could not be delivered.
    Stuck,
}

/// What a wait gave.
#[derive(Debug)]
pub enum Next {
    /// A batch.
    Batch(Box<Batch>),
    /// The epoch has ended.
    End,
    /// Nothing yet: ask again.
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
        Epoch(self.received.epoch().0 + u64::from(self.stage == Stage::Under))
    }

    /// Goes to the beginning of an epoch.
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
