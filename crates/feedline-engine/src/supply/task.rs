//! A few neighbouring slots of a batch, prepared by one thread in one go.

use std::any::Any;
use std::ops::Range;
use std::time::{Duration, Instant};

use feedline_data::plan::Plan;
use feedline_memory::SlotWriter;
use feedline_order::{EpochPath, Position, SampleRequest, Turn};

use crate::slot_ref::{BatchSerial, SlotRef};

/// Work for a preparer thread.
#[derive(Debug)]
pub struct Task {
    /// The batch whose slots it fills.
    pub(crate) batch: BatchSerial,
    /// The way through the epoch that the batch is part of.
    pub(crate) epoch_path: EpochPath,
    /// The turn of the sample in slot 0.
    pub(crate) first_turn: Turn,
    /// The slots to fill.
    pub(crate) slots: Range<usize>,
    /// When it was made.
    pub(crate) asked: Instant,
    /// Writes into the slots. Without one, the sample is prepared in memory of its own.
    pub(crate) writer: Option<SlotWriter>,
    /// The predicted cost of a slow sample, which is a task of its own.
    pub(crate) cost: Option<Duration>,
    /// Whether bytes of its samples were read before it was ready.
    pub(crate) was_read_ahead: bool,
    /// What the supply keeps for it.
    pub(crate) held: Option<Box<dyn Any + Send + Sync>>,
}

impl Task {
    /// The samples it is about, in the order of its slots.
    pub fn wanted(&self, plan: &Plan) -> Vec<SampleRequest> {
        let epoch = self.epoch_path.epoch;
        let visits = plan.sequence().epoch(epoch);
        self.positions(plan).map(|position| plan.wanted(epoch, &visits, position)).collect()
    }

    /// The way through the epoch that its samples are part of.
    pub fn epoch_path(&self) -> &EpochPath {
        &self.epoch_path
    }

    /// The positions of its samples, in the order of its slots.
    pub fn positions(&self, plan: &Plan) -> impl Iterator<Item = Position> {
        let turns = self.slots.clone().map(|slot| self.turn(slot));
        turns.map(|turn| plan.place(&self.epoch_path, turn).position)
    }

    /// Attaches data of the supply, which is dropped with the task: when its samples are prepared, or nobody needs them.
    pub fn hold(&mut self, held: impl Any + Send + Sync) {
        self.held = Some(Box::new(held));
    }

    /// The turn of the sample in a slot.
    pub(crate) fn turn(&self, slot: usize) -> Turn {
        Turn(self.first_turn.0 + slot as u64)
    }

    /// The first of its slots. Tasks in this order are in the order of need.
    pub fn need(&self) -> SlotRef {
        SlotRef { batch: self.batch, slot: self.slots.start }
    }
}
