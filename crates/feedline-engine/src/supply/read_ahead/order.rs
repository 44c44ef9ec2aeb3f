//! What the three ways to read ahead differ in: what is read next, in which groups, and when there is room for more.

use std::fmt::Debug;

use feedline_order::{Epoch, SampleRequest, WalkStep};

use super::super::Reading;
use super::buffer::{ReadBuffer, TaskRequest};
use super::range::{Grouping, ReadRange};
use crate::slot_ref::SlotRef;

/// When something is read: a smaller priority is read sooner.
///
/// Where samples are read in the order of need it is the slot that needs them, else their place in a round of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReadPriority {
    pub round: u64,
    pub place: u64,
}

impl From<SlotRef> for ReadPriority {
    fn from(slot: SlotRef) -> Self {
        Self { round: slot.batch.0, place: slot.slot as u64 }
    }
}

/// A sample to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleRead {
    pub request: SampleRequest,
    pub reading: Reading,
    pub priority: ReadPriority,
    /// Its step in this rank's walk, where samples are read along one; none if the walk does not come upon it.
    pub step: Option<WalkStep>,
}

/// How much is held and under way.
#[derive(Debug)]
pub(super) struct Load {
    pub bytes: u64,
    /// The priority of what is needed soonest of it.
    pub soonest: Option<ReadPriority>,
}

/// Decides what is read next.
///
/// Methods that get the buffer are called under its lock: they neither read nor wait. The others are called without it.
pub(super) trait ReadOrder: Debug + Send + Sync {
    /// The samples of each task, in the order of its slots.
    fn locate(&self, tasks: &[TaskRequest]) -> Vec<Vec<SampleRead>>;

    /// Whether a sample that is neither here nor pending will be read, now that a task asks for it.
    fn will_read(&self, read: &SampleRead, buffer: &mut ReadBuffer) -> bool {
        buffer.announce(*read);
        true
    }

    /// The samples to plan next, which are pending: by default those that tasks ask for. `is_idle` says that all ranges planned before
    /// have begun.
    fn next_chunk(&self, buffer: &mut ReadBuffer, _is_idle: bool) -> Vec<SampleRead> {
        buffer.take_announced()
    }

    /// An epoch that has to be opened before more is read.
    fn next_epoch(&self) -> Option<Epoch> {
        None
    }

    /// Finds the order of [`Self::next_epoch`].
    fn open(&self, _epoch: Epoch) {}

    /// Whether there is room for a range.
    fn has_room(&self, _range: &ReadRange, _load: &Load) -> bool {
        true
    }

    /// Called when tasks are dropped. If it returns true, the order begins anew, and everything that was read is dropped.
    fn restart(&self) -> bool {
        false
    }

    /// How parts are read together.
    fn grouping(&self) -> Grouping;

    /// Samples that are meant to be held, where that is shown to the user.
    fn shown_size(&self) -> Option<u64> {
        None
    }
}
