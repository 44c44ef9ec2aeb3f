//! A few neighbouring slots of a batch, prepared by one thread in one go.

use std::cmp::Ordering;
use std::ops::Range;

use feedline_memory::SlotWriter;

use super::budget::Need;
use crate::order::{Epoch, Share};

/// Work for a preparer thread.
#[derive(Debug)]
pub struct Task {
    /// The number of the batch in the run.
    pub(super) serial: u64,
    /// The epoch of the batch.
    pub(super) epoch: Epoch,
    /// The share that the batch is part of.
    pub(super) share: Share,
    /// The number in the share of the sample in slot 0.
    pub(super) first_number: u64,
    /// The slots to fill.
    pub(super) slots: Range<usize>,
    /// The way to their memory.
    pub(super) writer: SlotWriter,
}

impl Task {
    /// Its place in the stream.
    pub fn need(&self) -> Need {
        (self.serial, self.slots.start)
    }
}

/// The greatest task is the one needed soonest, as a heap wants it.
impl Ord for Task {
    fn cmp(&self, other: &Self) -> Ordering {
        other.need().cmp(&self.need())
    }
}

impl PartialOrd for Task {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Task {
    fn eq(&self, other: &Self) -> bool {
        self.need() == other.need()
    }
}

impl Eq for Task {}
