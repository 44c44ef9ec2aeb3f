//! A few neighbouring slots of a batch that one thread prepares together.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_data::plan::Plan;
use feedline_memory::SlotWriter;
use feedline_order::random::{Purpose, StreamKey, below};
use feedline_order::{
    Epoch, EpochPath, EpochSequence, Occurrence, Place, Position, SampleId, SampleRequest, Turn, Visit,
};

use crate::slot_ref::{BatchSerial, SlotRef};

/// A batch whose samples a sampler outside the engine has chosen.
#[derive(Debug)]
pub struct GivenBatch {
    /// The epoch.
    pub epoch: Epoch,
    /// The position of its first sample. The others follow.
    pub first: Position,
    /// Its samples, in slot order, and how often each came before in the epoch.
    pub samples: Vec<(SampleId, Occurrence)>,
    /// Indices in the dataset's own form, if they are not numbers. Opaque to the engine.
    pub indices: Option<Vec<u8>>,
    /// The thread that must prepare it, if its worker holds state, such as the iterator of an iterable dataset.
    pub worker: Option<usize>,
}

/// Work for a preparer thread.
#[derive(Debug)]
pub struct Task {
    /// The batch of its slots.
    pub(crate) batch: BatchSerial,
    /// The epoch and share that the batch belongs to.
    pub(crate) epoch_path: EpochPath,
    /// The turn of the sample in slot 0.
    pub(crate) first_turn: Turn,
    /// The samples, if a sampler outside the engine has chosen them.
    pub(crate) given: Option<Arc<GivenBatch>>,
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
        let visits = plan.sequence().epoch(self.epoch_path.epoch);
        self.placed_requests(plan, &visits).into_iter().map(|(_, request)| request).collect()
    }

    /// A task for the same samples, without a slot.
    pub(crate) fn unslotted(&self) -> Self {
        Self {
            batch: self.batch,
            epoch_path: self.epoch_path.clone(),
            first_turn: self.first_turn,
            given: self.given.clone(),
            slots: self.slots.clone(),
            asked: self.asked,
            writer: None,
            cost: self.cost,
            was_read_ahead: false,
            held: None,
        }
    }

    /// All its samples in slot order, and their places in the epoch.
    pub(crate) fn placed_requests(&self, plan: &Plan, visits: &EpochSequence) -> Vec<(Place, SampleRequest)> {
        if self.given.is_some() {
            return self.slots.clone().map(|slot| self.request(plan, visits, slot)).collect();
        }
        let places: Vec<Place> = self.slots.clone().map(|slot| plan.place(&self.epoch_path, self.turn(slot))).collect();
        let found = visits.each_at(places.iter().map(|place| place.position));
        let request = |visit: Visit| plan.request_of(self.epoch_path.epoch, visit);
        places.iter().copied().zip(found.into_iter().map(request)).collect()
    }

    /// The sample in a slot, and its place in the epoch.
    pub(crate) fn request(&self, plan: &Plan, visits: &EpochSequence, slot: usize) -> (Place, SampleRequest) {
        let epoch = self.epoch_path.epoch;
        if let Some(given) = &self.given {
            let (id, occurrence) = given.samples[slot];
            let place = Place { position: Position(given.first.0 + slot as u64), is_padding: false };
            return (place, SampleRequest { id, epoch, occurrence });
        }
        let place = plan.place(&self.epoch_path, self.turn(slot));
        (place, plan.request_at(epoch, visits, place.position))
    }

    /// A sample to take the place of a bad one. Its draws are those of its own position.
    pub(crate) fn substitute(
        &self,
        plan: &Plan,
        visits: &EpochSequence,
        place: Place,
        attempt: u32,
    ) -> (Place, SampleRequest) {
        let epoch = self.epoch_path.epoch;
        if self.given.is_some() {
            let key = StreamKey::new(plan.settings().seed, epoch, Purpose::Substitute);
            let id = SampleId(below(key.bits(place.position.0, 0, attempt), plan.source().len()));
            return (place, SampleRequest { id, epoch, occurrence: Occurrence(0) });
        }
        let position = plan.sequence().substitute(&self.epoch_path.share, epoch, place.position, attempt);
        // The substitute takes the slot of the bad sample.
        (Place { position, ..place }, plan.request_at(epoch, visits, position))
    }

    /// Whether its indices are in the dataset's own form, so that all its samples are made in one call.
    pub(crate) fn has_own_indices(&self) -> bool {
        self.given.as_ref().is_some_and(|given| given.indices.is_some())
    }

    /// The thread that must prepare it.
    pub(crate) fn worker(&self) -> Option<usize> {
        self.given.as_ref()?.worker
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
