//! The tasks that wait for a thread.
//!
//! In: tasks whose samples can be loaded. Out: the one with the least *slack*, the time until the consumer needs it minus
//! what it will take. Tasks of usual cost have it in the order of the stream; slow ones are compared one by one.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::outlook::Outlook;
use super::prepare::Report;
use crate::supply::Task;

/// A task that waits for a thread.
#[derive(Debug)]
pub(super) struct Queued {
    pub task: Task,
    /// What was prepared before its batch was open, and has yet to be put into its slot.
    pub prepared: Option<Box<Report>>,
}

impl From<Task> for Queued {
    fn from(task: Task) -> Self {
        Self { task, prepared: None }
    }
}

/// The greatest is the one needed soonest, as a heap wants it.
impl Ord for Queued {
    fn cmp(&self, other: &Self) -> Ordering {
        other.task.need().cmp(&self.task.need())
    }
}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.task.need() == other.task.need()
    }
}

impl Eq for Queued {}

#[derive(Debug, Default)]
pub(super) struct Queue {
    usual: BinaryHeap<Queued>,
    /// None of them is prepared.
    slow: Vec<Task>,
}

impl Queue {
    pub fn push(&mut self, queued: impl Into<Queued>) {
        let queued = queued.into();
        if queued.task.cost.is_some() && queued.prepared.is_none() {
            self.slow.push(queued.task);
        } else {
            self.usual.push(queued);
        }
    }

    /// Takes the task with the least slack. Those of batches from `opened` on only if they `may_start_early`.
    pub fn pop(&mut self, outlook: &Outlook, opened: u64, may_start_early: bool) -> Option<Queued> {
        let slack = |task: &Task| {
            let cost = task.cost.unwrap_or(outlook.usual_cost).as_secs_f64();
            task.serial as f64 * outlook.interval.as_secs_f64() - cost
        };
        let may_start = |task: &Task| may_start_early || task.serial < opened;
        let slow = self.slow.iter().enumerate().filter(|(_, task)| may_start(task));
        let slow = slow.map(|(number, task)| (number, slack(task), task.need()));
        let slow = slow.min_by(|(_, slack, need), (_, other, other_need)| {
            slack.total_cmp(other).then_with(|| need.cmp(other_need))
        });
        match (slow, self.usual.peek()) {
            (Some((number, least, _)), usual) if usual.is_none_or(|queued| least < slack(&queued.task)) => {
                Some(self.slow.swap_remove(number).into())
            }
            _ => self.usual.pop(),
        }
    }

    /// Samples that wait.
    pub fn samples(&self) -> usize {
        self.usual.iter().map(|queued| &queued.task).chain(&self.slow).map(|task| task.slots.len()).sum()
    }

    /// What was prepared before its batch was open, and waits to be put into it.
    pub fn early_reports(&self) -> impl Iterator<Item = &Report> {
        self.usual.iter().filter_map(|queued| queued.prepared.as_deref())
    }

    /// Whether tasks wait that may be started; those of batches from `opened` on only if they `may_start_early`.
    pub fn has_more(&self, opened: u64, may_start_early: bool) -> bool {
        !self.usual.is_empty() || self.slow.iter().any(|task| may_start_early || task.serial < opened)
    }

    /// Whether slow samples wait.
    pub fn has_slow(&self) -> bool {
        !self.slow.is_empty()
    }
}
