//! Which slot a prepared sample goes to: one interface, two orders of delivery.
//!
//! In strict and planned order the slot of a sample is known before the sample is prepared (`strict_order.rs`). In arrival order a
//! prepared sample gets the next free slot (`arrival_order.rs`). The rest of the engine does not know which of the two it works
//! with.
//!
//! Callers hold the run's lock, so no method blocks.

use std::fmt::Debug;
use std::sync::Arc;

use feedline_data::plan::Plan;
use feedline_memory::SlotWriter;
use feedline_order::{Epoch, Remaining, ShareIndex};

use super::arrival_order::ArrivalOrder;
use super::batch_plan::Upcoming;
use super::open_batch::OpenBatch;
use super::prepare::TaskReport;
use super::queue::Work;
use super::strict_order::StrictOrder;
use crate::slot_ref::{BatchSerial, SlotRef};
use crate::supply::Task;

/// Assigns slots to prepared samples.
pub(super) trait Placement: Debug + Send {
    /// Divides a newly opened batch into work.
    fn open(&mut self, opening: &Opening<'_>) -> BatchWork;

    /// Whether a task may still be needed. `front` is the batch that the consumer needs next.
    fn expects(&self, task: &Task, front: BatchSerial) -> bool;

    /// A thread takes a task without a writer. Returns false if the task is no longer needed.
    fn start(&mut self, task: &mut Task) -> bool;

    /// A sample without a writer is prepared. Returns all samples that can be copied into their slots now.
    fn finish(&mut self, task: &Task, report: Box<TaskReport>) -> Vec<Placed>;

    /// Takes back a task without a writer because memory is short. Returns the task if it should be queued again.
    fn put_back(&mut self, task: Task) -> Option<Task>;

    /// The consumer receives a batch.
    fn deliver(&mut self, epoch: Epoch, batch: BatchSerial) -> DeliveryRecord;

    /// Whether another slow sample may be announced. Always false in arrival order, where a slow sample delays no other.
    fn can_announce(&self) -> bool;

    /// Records that a task for a slow sample is on its way to the queue before its batch is open.
    fn announce(&mut self, slot: SlotRef);

    /// Counts slow samples whose batches are not open.
    fn early(&self) -> EarlySamples;

    /// Number of samples that occupy memory of their own, outside slots.
    fn apart(&self) -> usize;

    /// Forgets all samples. The caller drops the returned value after it releases the lock.
    fn clear(&mut self) -> Box<dyn Placement>;
}

/// The order of delivery that a plan asks for.
pub(super) fn placement_of(plan: &Plan) -> Box<dyn Placement> {
    if plan.is_in_arrival_order() { Box::new(ArrivalOrder::new(plan)) } else { Box::<StrictOrder>::default() }
}

/// A batch that is being opened.
#[derive(Debug)]
pub(super) struct Opening<'a> {
    pub upcoming: &'a Upcoming,
    pub batch: &'a OpenBatch,
    pub plan: &'a Plan,
    /// Number of slots in a task of samples with usual cost.
    pub group: usize,
}

/// The work of a batch that was opened.
#[derive(Debug, Default)]
pub(super) struct BatchWork {
    /// Tasks to request from the supply.
    pub tasks: Vec<Task>,
    /// Work that needs no loading.
    pub ready: Vec<Work>,
}

/// A sample that was prepared in memory of its own and now has a slot.
#[derive(Debug)]
pub(super) struct Placed {
    /// The slot of its request.
    pub requested: SlotRef,
    /// The slot that it is copied to.
    pub at: SlotRef,
    pub writer: SlotWriter,
    pub report: Box<TaskReport>,
}

/// What a delivered batch adds to the saved state, if the order was decided while the plan ran.
#[derive(Debug, Default)]
pub(super) struct DeliveryRecord {
    /// Its samples in slot order.
    pub indices: Vec<ShareIndex>,
    /// What is left of the epoch.
    pub rest: Option<Arc<Remaining>>,
}

/// Number of slow samples whose batches are not open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EarlySamples {
    /// All announced samples.
    pub announced: usize,
    /// Samples that a thread works on or has finished. Each occupies the memory of a slot.
    pub in_use: usize,
}
