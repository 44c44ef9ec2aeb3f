//! Samples whose preparation starts before their batch is open.
//!
//! In: slow samples ahead of the open batches. Out: what became of them when their batch opens. A sample that is prepared
//! early has memory of its own, booked in the budget, and is copied into its slot later. It never waits for memory: where
//! that is short it is put back until its batch opens, because no thread may wait for one that is not due.

use std::collections::BTreeMap;

use feedline_data::memory::Budget;

use super::prepare::Report;
use crate::supply::Task;

/// A batch and a slot of it.
pub(super) type Seat = (u64, usize);

#[derive(Debug, Default)]
pub(super) struct Early {
    samples: BTreeMap<Seat, State>,
    /// Those that run or are done.
    in_use: usize,
}

#[derive(Debug)]
enum State {
    /// At the supply or in the queue.
    Waiting,
    Running,
    Done(Box<Report>),
    PutBack(Box<Task>),
}

/// What became of a sample until its batch opened.
#[derive(Debug)]
pub(super) enum Adopted {
    /// Its task comes, or is at work.
    Coming,
    Done(Box<Report>),
    PutBack(Box<Task>),
}

impl Early {
    /// A task for this seat is on its way.
    pub fn announce(&mut self, seat: Seat) {
        self.samples.insert(seat, State::Waiting);
    }

    /// The task has got a thread; false if nobody waits for it any more.
    pub fn start(&mut self, seat: Seat) -> bool {
        let Some(state) = self.samples.get_mut(&seat) else { return false };
        *state = State::Running;
        self.in_use += 1;
        true
    }

    /// The sample is prepared; gives it back if its batch was opened or dropped meanwhile.
    pub fn finish(&mut self, seat: Seat, report: Box<Report>) -> Option<Box<Report>> {
        match self.samples.get_mut(&seat) {
            Some(state) => {
                *state = State::Done(report);
                None
            }
            None => Some(report),
        }
    }

    /// There is no memory for the sample now; gives the task back if its batch was opened or dropped meanwhile.
    pub fn put_back(&mut self, task: Box<Task>) -> Option<Box<Task>> {
        match self.samples.get_mut(&task.need()) {
            Some(state) => {
                *state = State::PutBack(task);
                self.in_use -= 1;
                None
            }
            None => Some(task),
        }
    }

    /// Hands a sample over to its batch, which is being opened.
    pub fn adopt(&mut self, seat: Seat) -> Option<Adopted> {
        let state = self.samples.remove(&seat)?;
        self.in_use -= usize::from(matches!(state, State::Running | State::Done(_)));
        Some(match state {
            State::Waiting | State::Running => Adopted::Coming,
            State::Done(report) => Adopted::Done(report),
            State::PutBack(task) => Adopted::PutBack(task),
        })
    }

    /// Samples that take up a slot.
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// All samples that were announced.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Forgets all; returns their memory.
    pub fn clear(&mut self, budget: &Budget) {
        for state in std::mem::take(&mut self.samples).into_values() {
            if let State::Done(report) = state {
                budget.release(report.kept_bytes);
            }
        }
        self.in_use = 0;
    }
}
