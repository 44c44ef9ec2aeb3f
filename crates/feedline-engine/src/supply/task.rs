//! A few neighbouring slots of a batch that one thread prepares together.

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
    /// The batch of its slots.
    pub(crate) batch: BatchSerial,
    /// The epoch and share that the batch belongs to.
    pub(crate) epoch_path: EpochPath,
    /// The turn of the sample in slot 0.
    pub(crate) first_turn: Turn,
    /// The slots to fill.
    pub(crate) slots: Range<usize>,
    /// When the task was created.
    pub(crate) asked: Instant,
    /// Writes into the slots. Without a writer the sample is prepared in memory of its own.
    pub(crate) writer: Option<SlotWriter>,
    /// The predicted cost of a slow sample. A slow sample has a task of its own.
    pub(crate) cost: Option<Duration>,
    /// Whether bytes of its samples were read ahead.
    pub(crate) was_read_ahead: bool,
    /// Data that the supply holds for it.
    pub(crate) held: Option<Box<dyn Any + Send + Sync>>,
}

impl Task {
    /// The samples of this task, in slot order.
    pub fn requests(&self, plan: &Plan) -> Vec<SampleRequest> {
        let epoch = self.epoch_path.epoch;
        let visits = plan.sequence().epoch(epoch);
        self.positions(plan).map(|position| plan.request_at(epoch, &visits, position)).collect()
    }

    /// The epoch and share that its samples belong to.
    pub fn epoch_path(&self) -> &EpochPath {
        &self.epoch_path
    }

    /// The positions of its samples, in slot order.
    pub fn positions(&self, plan: &Plan) -> impl Iterator<Item = Position> {
        let turns = self.slots.clone().map(|slot| self.turn(slot));
        turns.map(|turn| plan.place(&self.epoch_path, turn).position)
    }

    /// Attaches data of the supply. It is dropped with the task: when its samples are prepared or no longer needed.
    pub fn hold(&mut self, held: impl Any + Send + Sync) {
        self.held = Some(Box::new(held));
    }

    /// The turn of the sample in a slot.
    pub(crate) fn turn(&self, slot: usize) -> Turn {
        Turn(self.first_turn.0 + slot as u64)
    }

    /// Its first slot. Sorting tasks by it gives the order of need.
    pub fn need(&self) -> SlotRef {
        SlotRef { batch: self.batch, slot: self.slots.start }
    }
}
