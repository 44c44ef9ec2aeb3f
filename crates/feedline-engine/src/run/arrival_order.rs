//! Arrival order: what is ready first comes first, within bounds.
//!
//! In: prepared samples, each in memory of its own. Out: the next free slot of the epoch for each. A sample that is far too early
//! waits, so no sample moves by more than `max_displacement` turns from its place in the sampler's order.
//!
//! Always true: turns are given in order, each once. An overdue sample gets the next turn, so no sample waits for ever.

use std::collections::BTreeMap;
use std::sync::Arc;

use feedline_data::plan::Plan;
use feedline_memory::SlotWriter;
use feedline_order::{Epoch, Missing, ShareIndex, Turn};

use super::placement::{BatchWork, DeliveryRecord, EarlySamples, Opening, Placed, Placement};
use super::prepare::TaskReport;
use crate::slot_ref::{BatchSerial, SlotRef};
use crate::supply::Task;

/// Gives each sample the next free slot when it is prepared.
#[derive(Debug)]
pub(super) struct ArrivalOrder {
    max_displacement: u64,
    batch_size: u64,
    epochs: BTreeMap<Epoch, ArrivingEpoch>,
    /// The open batches that the consumer has not received.
    batches: BTreeMap<BatchSerial, ArrivingBatch>,
}

/// An epoch with requested samples.
#[derive(Debug)]
struct ArrivingEpoch {
    /// The batch that holds the first turn of the epoch. It may lie before the first batch of this run, if the run resumed in
    /// mid-epoch.
    first_batch: BatchSerial,
    /// The next turn to give.
    turn: Turn,
    /// Requested samples without a turn: share index to the slot of the request.
    expected: BTreeMap<ShareIndex, SlotRef>,
    /// Prepared samples that are too early to be placed.
    held: BTreeMap<ShareIndex, Box<TaskReport>>,
    /// Samples of the epoch that the consumer has not received.
    missing: Missing,
}

/// The samples of a batch.
#[derive(Debug)]
struct ArrivingBatch {
    /// Writers of the free slots. The last slot comes first, so `pop` gives the first free slot.
    free: Vec<SlotWriter>,
    /// Share indices of the samples in the filled slots, in slot order.
    indices: Vec<ShareIndex>,
}

/// The sample of a task. In arrival order each sample is a task of its own.
fn index_of(task: &Task) -> ShareIndex {
    task.epoch_path.index_at(task.turn(task.slots.start))
}

impl ArrivalOrder {
    pub(super) fn new(plan: &Plan) -> Self {
        let (max_displacement, batch_size) = (plan.max_displacement(), plan.settings().batch_size as u64);
        Self { max_displacement, batch_size, epochs: BTreeMap::new(), batches: BTreeMap::new() }
    }
}

impl Placement for ArrivalOrder {
    fn open(&mut self, opening: &Opening<'_>) -> BatchWork {
        let Opening { upcoming, batch, plan, .. } = *opening;
        let cursor = &batch.cursor;
        let turn = cursor.next_turn(plan);
        let epoch = self.epochs.entry(cursor.epoch).or_insert_with(|| ArrivingEpoch {
            // Wraps if the run resumed in mid-epoch: the first batch of the epoch then has no serial number. `finish` wraps back.
            first_batch: BatchSerial(batch.serial.0.wrapping_sub(cursor.batches)),
            turn,
            expected: BTreeMap::new(),
            held: BTreeMap::new(),
            missing: Missing::new(turn.0, cursor.rest.as_ref().map_or(&[], |rest| rest.pending_at(turn))),
        });
        let tasks: Vec<Task> = (0..batch.len()).map(|slot| upcoming.task(plan, slot..slot + 1)).collect();
        epoch.expected.extend(tasks.iter().map(|task| (index_of(task), task.need())));
        // One writer per slot, because samples arrive one at a time.
        let free = (0..batch.len()).rev().map(|slot| batch.claim(slot..slot + 1)).collect();
        self.batches.insert(batch.serial, ArrivingBatch { free, indices: Vec::new() });
        BatchWork { tasks, ready: Vec::new() }
    }

    fn expects(&self, task: &Task, _: BatchSerial) -> bool {
        let epoch = self.epochs.get(&task.epoch_path.epoch);
        epoch.is_some_and(|epoch| epoch.expected.get(&index_of(task)) == Some(&task.need()))
    }

    fn start(&mut self, _: &mut Task) -> bool {
        true
    }

    fn finish(&mut self, task: &Task, report: Box<TaskReport>) -> Vec<Placed> {
        if !self.expects(task, task.batch) {
            // The task was requested before a jump.
            return Vec::new();
        }
        let epoch = self.epochs.get_mut(&task.epoch_path.epoch).expect("an expected task has its epoch");
        epoch.held.insert(index_of(task), report);
        let mut placed = Vec::new();
        while let Some((index, requested, report)) = epoch.next(self.max_displacement) {
            // A turn maps to its batch and slot by division: only the last batch of an epoch is short.
            let (batches, slot) = (epoch.turn.0 / self.batch_size, epoch.turn.0 % self.batch_size);
            epoch.turn.0 += 1;
            let at = SlotRef { batch: BatchSerial(epoch.first_batch.0.wrapping_add(batches)), slot: slot as usize };
            let batch = self.batches.get_mut(&at.batch).expect("a turn is given to samples of open batches only");
            batch.indices.push(index);
            let writer = batch.free.pop().expect("a batch has a slot for each of its turns");
            placed.push(Placed { requested, at, writer, report });
        }
        placed
    }

    fn put_back(&mut self, task: Task) -> Option<Task> {
        Some(task)
    }

    fn deliver(&mut self, epoch: Epoch, batch: BatchSerial) -> DeliveryRecord {
        // Batches are delivered in order, so no sample of an earlier epoch is missing any more.
        self.epochs = self.epochs.split_off(&epoch);
        let missing = self.epochs.get_mut(&epoch).map(|epoch| &mut epoch.missing);
        let missing = missing.expect("an epoch stays until a later one is delivered");
        let indices = self.batches.remove(&batch).expect("a batch is delivered once").indices;
        for &index in &indices {
            missing.deliver(index);
        }
        DeliveryRecord { indices, rest: Some(Arc::new(missing.rest())) }
    }

    fn can_announce(&self) -> bool {
        false
    }

    fn announce(&mut self, _: SlotRef) {
        unreachable!("in arrival order a slow sample holds up nobody");
    }

    fn early(&self) -> EarlySamples {
        EarlySamples::default()
    }

    fn apart(&self) -> usize {
        self.epochs.values().map(|epoch| epoch.held.len()).sum()
    }

    fn clear(&mut self) -> Box<dyn Placement> {
        let (epochs, batches) = (std::mem::take(&mut self.epochs), std::mem::take(&mut self.batches));
        Box::new(Self { epochs, batches, ..*self })
    }
}

impl ArrivingEpoch {
    /// Takes the prepared sample that may have the next turn. Returns its share index and the slot of its request.
    fn next(&mut self, max_displacement: u64) -> Option<(ShareIndex, SlotRef, Box<TaskReport>)> {
        let (&oldest, _) = self.expected.first_key_value()?;
        let (&index, _) = self.held.first_key_value()?;
        // The oldest sample would move by more than the bound if another sample took this turn.
        let is_overdue = self.turn.0 >= oldest.0.saturating_add(max_displacement);
        let is_too_early = index.0 > self.turn.0.saturating_add(max_displacement);
        if index != oldest && (is_overdue || is_too_early) {
            return None;
        }
        let requested = self.expected.remove(&index)?;
        let (index, report) = self.held.pop_first()?;
        Some((index, requested, report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_data::memory::Budget;
    use proptest::prelude::*;

    fn arriving(expected: std::ops::Range<u64>) -> ArrivingEpoch {
        let slot = SlotRef { batch: BatchSerial(0), slot: 0 };
        let expected = expected.map(|index| (ShareIndex(index), slot)).collect();
        ArrivingEpoch {
            first_batch: BatchSerial(0),
            turn: Turn(0),
            expected,
            held: BTreeMap::new(),
            missing: Missing::default(),
        }
    }

    proptest! {
        #[test]
        fn law_2_every_sample_gets_one_place_and_displacement_is_bounded(
            order in Just((0..80_u64).collect::<Vec<_>>()).prop_shuffle(), bound in 0..40_u64, threads in 1..20_usize,
        ) {
            let (mut epoch, budget) = (arriving(0..80), Budget::new(0));
            let mut given = Vec::new();
            // Threads take samples in order and finish in any order.
            let mut running: Vec<u64> = Vec::new();
            let mut upcoming = 0..80;
            let mut pick = order.iter().copied().cycle();
            while given.len() < 80 {
                while running.len() < threads && let Some(number) = upcoming.next() {
                    running.push(number);
                }
                prop_assert!(!running.is_empty(), "the last sample frees those that wait");
                let number = running.swap_remove(pick.next().unwrap() as usize % running.len());
                epoch.held.insert(ShareIndex(number), Box::new(TaskReport::new(&budget)));
                while let Some((ShareIndex(index), ..)) = epoch.next(bound) {
                    prop_assert!(index.abs_diff(epoch.turn.0) <= bound, "{index} at {:?}", epoch.turn);
                    epoch.turn.0 += 1;
                    given.push(index);
                }
            }
            given.sort_unstable();
            prop_assert!(given.into_iter().eq(0..80));
        }
    }
}
