//! The batches that are open ahead of the consumer.
//!
//! In: the cursor of the next batch to open, reports of finished tasks. Out: tasks, and complete batches in order. Batches
//! have serial numbers that are never used again, so a late report of a batch that was dropped finds nothing.

use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use feedline_memory::{OpenSlab, Pool};

use super::prepare::Report;
use super::{Budget, Task};
use crate::batch::{Batch, BatchField, FieldData, FieldForm, Loose, RaggedError, stack};
use crate::cursor::Cursor;
use crate::error::SampleFailure;
use crate::metrics::{Phase, Substitute};
use crate::plan::Plan;

/// A task is made long enough to last about this long, so that taking it costs little beside it.
const TASK_TIME: Duration = Duration::from_micros(100);

/// The open batches and the tasks that wait for a thread.
#[derive(Debug)]
pub(super) struct Window {
    pub batches: VecDeque<OpenBatch>,
    /// Tasks that can be loaded, soonest needed first.
    pub waiting: BinaryHeap<Task>,
    upcoming: Cursor,
    next_serial: u64,
}

/// A batch in preparation.
#[derive(Debug)]
pub(super) struct OpenBatch {
    serial: u64,
    /// Where it begins.
    pub cursor: Cursor,
    len: usize,
    missing: usize,
    slab: OpenSlab,
    loose: Vec<Option<Vec<Loose>>>,
    pub failure: Option<Arc<SampleFailure>>,
    pub substitutes: Vec<Substitute>,
    held_bytes: u64,
    /// Time its samples spent reading, in ops, and waiting for memory.
    spent: [Duration; 3],
}

impl OpenBatch {
    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// What its samples spent most of their time on.
    pub fn main_phase(&self) -> Phase {
        let phases = [Phase::Read, Phase::Prepare, Phase::Memory];
        let longest = (0..3).max_by_key(|&phase| self.spent[phase]).expect("there are three");
        phases[longest]
    }

    pub fn release(&self, budget: &Budget) {
        budget.release(self.held_bytes);
    }

    /// Everything in its final form.
    pub fn assemble(self, plan: &Plan) -> Result<Batch, Box<RaggedError>> {
        let slab = self.slab.seal().expect("writers are gone before their slots count as filled: see Run::work");
        let slab = Arc::new(slab);
        let mut loose: Vec<std::vec::IntoIter<Loose>> =
            self.loose.into_iter().map(|values| values.unwrap_or_default().into_iter()).collect();
        let mut fields = Vec::with_capacity(plan.layout().fields().len());
        for (name, form) in plan.layout().fields() {
            let data = match form {
                FieldForm::Region { region, dtype, shape } => {
                    let mut batch_shape = vec![self.len];
                    batch_shape.extend(shape);
                    FieldData::Region { slab: Arc::clone(&slab), region: *region, dtype: *dtype, shape: batch_shape }
                }
                FieldForm::Stacked => stack(name, loose.iter_mut().filter_map(Iterator::next).collect())?,
                FieldForm::List => FieldData::List(loose.iter_mut().filter_map(Iterator::next).collect()),
            };
            fields.push(BatchField { name: Arc::clone(name), data });
        }
        Ok(Batch { epoch: self.cursor.epoch, number: self.cursor.batches, len: self.len, fields })
    }
}

impl Window {
    pub fn new(cursor: Cursor) -> Self {
        Self { batches: VecDeque::new(), waiting: BinaryHeap::new(), upcoming: cursor, next_serial: 0 }
    }

    /// Goes on from `cursor`; gives what was open, to be dropped without the lock.
    pub fn reset(&mut self, cursor: Cursor, budget: &Budget) -> (VecDeque<OpenBatch>, BinaryHeap<Task>) {
        for batch in &self.batches {
            batch.release(budget);
        }
        self.upcoming = cursor;
        (std::mem::take(&mut self.batches), std::mem::take(&mut self.waiting))
    }

    /// The number of the batch that the consumer needs next.
    pub fn front_serial(&self) -> u64 {
        self.batches.front().map_or(self.next_serial, |batch| batch.serial)
    }

    /// Opens the next batch; gives its tasks of `group` slots each, or nothing if the system has no memory left.
    pub fn open_next(&mut self, plan: &Plan, pool: &Pool, budget: &Budget, group: usize) -> Option<Vec<Task>> {
        let slab = pool.open()?;
        let cursor = self.upcoming.normalised(plan);
        self.upcoming = Cursor { batches: cursor.batches + 1, ..cursor };
        let share = plan.share(cursor.offset);
        let (serial, len) = (self.next_serial, share.batch_len(cursor.batches));
        self.next_serial += 1;
        let held_bytes = slab.layout().total_bytes() as u64;
        budget.hold(held_bytes);
        let first_number = cursor.batches * plan.settings().batch_size as u64;
        let tasks = (0..len)
            .step_by(group)
            .map(|first| {
                let slots = first..(first + group).min(len);
                let writer = slab.claim(slots.clone()).expect("a new slab's slots are free and groups are disjoint");
                Task { serial, epoch: cursor.epoch, share, first_number, slots, writer }
            })
            .collect();
        self.batches.push_back(OpenBatch {
            serial,
            cursor,
            len,
            missing: len,
            slab,
            loose: (0..len).map(|_| None).collect(),
            failure: None,
            substitutes: Vec::new(),
            held_bytes,
            spent: [Duration::ZERO; 3],
        });
        Some(tasks)
    }

    /// Books a finished task; says whether the batch that the consumer needs next is now complete.
    pub fn book(&mut self, serial: u64, slots: usize, report: Report, budget: &Budget) -> bool {
        let number = serial.checked_sub(self.front_serial());
        let Some(batch) = number.and_then(|number| self.batches.get_mut(number as usize)) else {
            budget.release(report.kept_bytes);
            return false;
        };
        batch.held_bytes += report.kept_bytes;
        for prepared in report.prepared {
            batch.loose[prepared.slot] = Some(prepared.loose);
            batch.substitutes.extend(prepared.substitute);
        }
        let is_earlier =
            |failure: &Arc<SampleFailure>| batch.failure.as_ref().is_none_or(|known| failure.position < known.position);
        if let Some(failure) = report.failure.filter(is_earlier) {
            batch.failure = Some(failure);
        }
        batch.missing -= slots;
        for (total, time) in batch.spent.iter_mut().zip([report.read, report.ops, report.memory]) {
            *total += time;
        }
        if batch.is_complete() {
            batch.substitutes.sort_by_key(|substitute| substitute.failure.position);
        }
        number == Some(0) && batch.is_complete()
    }
}

/// Slots per task: as many as last [`TASK_TIME`], but so few that all threads share a batch.
pub(super) fn group_size(mean_sample_time: Option<Duration>, batch_size: usize, workers: usize) -> usize {
    let Some(mean) = mean_sample_time else { return 1 };
    let wanted = TASK_TIME.as_nanos() / mean.as_nanos().max(1);
    (wanted as usize).clamp(1, (batch_size / (4 * workers)).max(1))
}
