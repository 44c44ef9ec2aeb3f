//! The interface of a read order: what is read next, how reads are grouped, and when there is room for more.

use std::fmt::Debug;

use feedline_order::{Epoch, SampleRequest, WalkStep};

use super::super::Reading;
use super::buffer::{ReadBuffer, TaskRequest};
use super::range::{Grouping, ReadRange};
use crate::slot_ref::SlotRef;

/// Reads with a smaller priority happen sooner.
///
/// In the order of need, the priority is the slot. Otherwise it is the place in a round of reads.
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

/// A sample to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleRead {
    pub request: SampleRequest,
    pub reading: Reading,
    pub priority: ReadPriority,
    /// Its step in this rank's walk. `None` without a walk, or if the walk does not reach it.
    pub step: Option<WalkStep>,
}

/// The bytes held and in flight.
#[derive(Debug)]
pub(super) struct Load {
    pub bytes: u64,
    /// The earliest priority among them.
    pub soonest: Option<ReadPriority>,
}

/// Decides what is read next.
///
/// `locate` and `open` run without the lock of the buffer. All other methods run under it: they neither read nor block.
pub(super) trait ReadOrder: Debug + Send + Sync {
    /// The samples of each task, in slot order.
    fn locate(&self, tasks: &[TaskRequest]) -> Vec<Vec<SampleRead>>;

    /// A task requests a sample that is neither here nor pending. Returns whether it will be read.
    fn will_read(&self, read: &SampleRead, buffer: &mut ReadBuffer) -> bool {
        buffer.announce(*read);
        true
    }

    /// The pending samples to read next. By default these are the requested ones. `is_idle` means that all earlier ranges have
    /// started.
    fn next_chunk(&self, buffer: &mut ReadBuffer, _is_idle: bool) -> Vec<SampleRead> {
        buffer.take_announced()
    }

    /// An epoch to open before more is read.
    fn next_epoch(&self) -> Option<Epoch> {
        None
    }

    /// Computes the order of [`Self::next_epoch`].
    fn open(&self, _epoch: Epoch) {}

    /// Whether there is room for a range.
    fn has_room(&self, _range: &ReadRange, _load: &Load) -> bool {
        true
    }

    /// Called when tasks are dropped. If it returns true, the order starts again, and all read samples are dropped.
    fn restart(&self) -> bool {
        false
    }

    /// How parts are merged into ranges.
    fn grouping(&self) -> Grouping;

    /// The target number of held samples, if it is shown to the user.
    fn shown_size(&self) -> Option<u64> {
        None
    }
}
