//! Arrival order: what is ready first comes first, within bounds.
//!
//! In: samples as they are prepared, in memory of their own. Out: the next free place of the epoch for each. One that would
//! come too early waits, so that none comes more than `max_displacement` places later or earlier than in the sampler's order.
//!
//! Always true: places are given in order, each once; a sample whose place is due gets it, so nothing waits for ever.

use std::collections::BTreeMap;

use feedline_data::plan::Plan;
use feedline_order::{Epoch, Missing, Rest};

use super::prepare::Report;
use crate::state::Cursor;
use crate::supply::Task;

/// The epochs of which samples are asked for.
#[derive(Debug)]
pub(super) struct Arrivals {
    max_displacement: u64,
    batch_size: u64,
    epochs: BTreeMap<Epoch, Arriving>,
}

/// An epoch.
#[derive(Debug)]
struct Arriving {
    /// The serial number of the batch with the first turn of all, whether that was opened or not.
    first_serial: u64,
    /// The next place to give.
    turn: u64,
    /// The serial numbers of tasks for samples that have no place yet, by the samples' numbers.
    expected: BTreeMap<u64, u64>,
    /// Samples that came too early.
    held: BTreeMap<u64, Box<Report>>,
    /// What the consumer has received.
    missing: Missing,
}

/// A sample that has got its place.
#[derive(Debug)]
pub(super) struct Arrived {
    pub serial: u64,
    pub slot: usize,
    /// The batch that it was asked for with.
    pub asked_for: u64,
    pub number: u64,
    pub report: Box<Report>,
}

impl Arrivals {
    pub fn new(plan: &Plan) -> Self {
        let (max_displacement, batch_size) = (plan.max_displacement(), plan.settings().batch_size as u64);
        Self { max_displacement, batch_size, epochs: BTreeMap::new() }
    }

    /// Forgets all; gives what was held.
    pub fn clear(&mut self) -> impl Iterator<Item = Box<Report>> + use<> {
        std::mem::take(&mut self.epochs).into_values().flat_map(|epoch| epoch.held.into_values())
    }

    /// A batch with the number `serial` was opened at `cursor`, and its samples are asked for.
    pub fn expect(&mut self, serial: u64, cursor: &Cursor, plan: &Plan, len: usize) {
        let (turns, course) = (cursor.turns(plan), cursor.course(plan));
        let epoch = self.epochs.entry(cursor.epoch).or_insert_with(|| Arriving {
            first_serial: serial.wrapping_sub(cursor.batches),
            turn: turns,
            expected: BTreeMap::new(),
            held: BTreeMap::new(),
            missing: Missing::new(turns, cursor.rest.as_ref().map_or(&[], |rest| rest.pending_at(turns))),
        });
        epoch.expected.extend((turns..turns + len as u64).map(|turn| (course.number(turn), serial)));
    }

    /// Whether somebody waits for a task.
    pub fn expects(&self, task: &Task) -> bool {
        let number = task.course.number(task.turn(task.slots.start));
        let epoch = self.epochs.get(&task.course.epoch);
        epoch.is_some_and(|epoch| epoch.expected.get(&number) == Some(&task.serial))
    }

    /// Gives places to a sample that is prepared and to those that waited for it; the sample itself may have to wait.
    pub fn arrive(&mut self, task: &Task, report: Box<Report>) -> Vec<Arrived> {
        let number = task.course.number(task.turn(task.slots.start));
        let Some(epoch) = self.epochs.get_mut(&task.course.epoch) else { return Vec::new() };
        epoch.held.insert(number, report);
        let mut arrived = Vec::new();
        while let Some((number, asked_for, report)) = epoch.next(self.max_displacement) {
            let (batch, slot) = (epoch.turn / self.batch_size, epoch.turn % self.batch_size);
            epoch.turn += 1;
            let serial = epoch.first_serial.wrapping_add(batch);
            arrived.push(Arrived { serial, slot: slot as usize, asked_for, number, report });
        }
        arrived
    }

    /// Books that the consumer has received samples; gives what is left of the epoch.
    pub fn deliver(&mut self, epoch: Epoch, numbers: &[u64]) -> Rest {
        self.epochs = self.epochs.split_off(&epoch);
        let missing = self.epochs.get_mut(&epoch).map(|epoch| &mut epoch.missing);
        let missing = missing.expect("an epoch stays until a later one is delivered");
        for &number in numbers {
            missing.deliver(number);
        }
        missing.rest()
    }

    /// Samples that came too early.
    pub fn held(&self) -> usize {
        self.epochs.values().map(|epoch| epoch.held.len()).sum()
    }
}

impl Arriving {
    /// Takes the sample that may have the next place, with its number and the batch that it was asked for with.
    fn next(&mut self, max_displacement: u64) -> Option<(u64, u64, Box<Report>)> {
        let (&oldest, _) = self.expected.first_key_value()?;
        let (&number, _) = self.held.first_key_value()?;
        let is_overdue = self.turn >= oldest.saturating_add(max_displacement);
        let is_too_early = number > self.turn.saturating_add(max_displacement);
        if number != oldest && (is_overdue || is_too_early) {
            return None;
        }
        let serial = self.expected.remove(&number)?;
        let (number, report) = self.held.pop_first()?;
        Some((number, serial, report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arriving(expected: std::ops::Range<u64>) -> Arriving {
        let expected = expected.map(|number| (number, 0)).collect();
        Arriving { first_serial: 0, turn: 0, expected, held: BTreeMap::new(), missing: Missing::default() }
    }

    proptest! {
        #[test]
        fn law_2_every_sample_gets_one_place_and_displacement_is_bounded(
            order in Just((0..80_u64).collect::<Vec<_>>()).prop_shuffle(), bound in 0..40_u64, threads in 1..20_usize,
        ) {
            let mut epoch = arriving(0..80);
            let mut given = Vec::new();
            // Threads take samples in order and finish them in any.
            let mut running: Vec<u64> = Vec::new();
            let mut upcoming = 0..80;
            let mut pick = order.iter().copied().cycle();
            while given.len() < 80 {
                while running.len() < threads && let Some(number) = upcoming.next() {
                    running.push(number);
                }
                prop_assert!(!running.is_empty(), "the last sample frees those that wait");
                let number = running.swap_remove(pick.next().unwrap() as usize % running.len());
                epoch.held.insert(number, Box::default());
                while let Some((number, ..)) = epoch.next(bound) {
                    prop_assert!(number.abs_diff(epoch.turn) <= bound, "{number} at {}", epoch.turn);
                    epoch.turn += 1;
                    given.push(number);
                }
            }
            given.sort_unstable();
            prop_assert!(given.into_iter().eq(0..80));
        }
    }
}
