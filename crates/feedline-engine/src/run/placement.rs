//! Which slot a prepared sample goes to: one interface, two orders of delivery.
//!
//! In strict and planned order every sample has its slot before it is prepared (`strict_order.rs`). In arrival order a sample gets the
//! next free slot when it is prepared (`arrival_order.rs`). The rest of the engine does not know which of the two it works for.
//!
//! All methods are called with the run's lock held and return at once.

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

/// Gives prepared samples their slots.
pub(super) trait Placement: Debug + Send {
    /// Divides a batch that was just opened into work.
    fn open(&mut self, opening: &Opening<'_>) -> BatchWork;

    /// Whether somebody may still need a task, where `front` is the batch that the consumer needs next.
    fn expects(&self, task: &Task, front: BatchSerial) -> bool;

    /// A task without a writer gets a thread. Returns false if nobody needs it any more.
    fn start(&mut self, task: &mut Task) -> bool;

    /// The sample of a task without a writer is prepared. Returns all samples that can be copied into their slots now.
    fn finish(&mut self, task: &Task, report: Box<TaskReport>) -> Vec<Placed>;

    /// Takes back a task without a writer, for whose sample there is no memory now. Returns it if it belongs into the queue.
    fn put_back(&mut self, task: Task) -> Option<Task>;

    /// The consumer receives a batch.
    fn deliver(&mut self, epoch: Epoch, batch: BatchSerial) -> DeliveryRecord;

    /// Whether a further slow sample may be announced: never, where a slow sample holds up nobody.
    fn can_announce(&self) -> bool;

    /// A task for a slow sample is on its way to the queue, although its batch is not open.
    fn announce(&mut self, slot: SlotRef);

    /// Slow samples of batches that are not open.
    fn early(&self) -> EarlySamples;

    /// Samples that take up memory of their own, outside of slots.
    fn apart(&self) -> usize;

    /// Forgets everything. The caller drops what is returned without the lock.
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
    /// How many slots of usual cost make up a task.
    pub group: usize,
}

/// The work of a batch that was opened.
#[derive(Debug, Default)]
pub(super) struct BatchWork {
    /// Tasks to be requested of the supply.
    pub wanted: Vec<Task>,
    /// Work for which nothing has to be loaded any more.
    pub ready: Vec<Work>,
}

/// A sample that was prepared in memory of its own and has a slot now.
#[derive(Debug)]
pub(super) struct Placed {
    /// The slot that its task was made for.
    pub asked_for: SlotRef,
    /// The slot that it goes to.
    pub at: SlotRef,
    pub writer: SlotWriter,
    pub report: Box<TaskReport>,
}

/// What a batch leaves behind for the state of the stream, where its order was decided while the plan ran.
#[derive(Debug, Default)]
pub(super) struct DeliveryRecord {
    /// Its samples, slot by slot.
    pub indices: Vec<ShareIndex>,
    /// What is left of the epoch.
    pub rest: Option<Arc<Remaining>>,
}

/// Slow samples of batches that are not open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EarlySamples {
    /// All that were announced.
    pub announced: usize,
    /// Those that are at work or prepared: each takes up the memory of a slot.
    pub in_use: usize,
}
