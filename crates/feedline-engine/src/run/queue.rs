//! The queue of work for preparer threads.
//!
//! In: tasks that can be loaded, and prepared samples to copy into their slots. Out: the work with the least *slack*. Slack is the
//! time until the consumer needs the work, minus its cost. Work of usual cost is ordered by its place in the stream, which is the
//! order of its slack. Slow tasks are compared one by one.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

use super::lookahead::Lookahead;
use super::placement::Placed;
use crate::slot_ref::{BatchSerial, SlotRef};
use crate::supply::Task;

/// What a thread does next.
#[derive(Debug)]
pub(super) enum Work {
    /// Load samples and run the ops.
    Prepare(Task),
    /// Copy a sample into its slot. It was prepared before its batch was open.
    Place(Placed),
}

impl Work {
    /// The first slot that it fills.
    fn need(&self) -> SlotRef {
        match self {
            Self::Prepare(task) => task.need(),
            Self::Place(placed) => placed.at,
        }
    }

    /// The only thread that may take it, if its worker holds state.
    fn worker(&self) -> Option<usize> {
        match self {
            Self::Prepare(task) => task.worker(),
            Self::Place(_) => None,
        }
    }

    /// Number of samples.
    fn samples(&self) -> usize {
        match self {
            Self::Prepare(task) => task.slots.len(),
            Self::Place(_) => 1,
        }
    }
}

/// The work that is needed soonest is the greatest, because `BinaryHeap` pops the greatest.
impl Ord for Work {
    fn cmp(&self, other: &Self) -> Ordering {
        other.need().cmp(&self.need())
    }
}

impl PartialOrd for Work {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Work {
    fn eq(&self, other: &Self) -> bool {
        self.need() == other.need()
    }
}

impl Eq for Work {}

#[derive(Debug, Default)]
pub(super) struct WorkQueue {
    usual: BinaryHeap<Work>,
    /// Work that only one thread may take, by the number of the thread.
    bound: BTreeMap<usize, BinaryHeap<Work>>,
    slow: Vec<Task>,
}

impl WorkQueue {
    pub(super) fn push(&mut self, work: Work) {
        match work {
            Work::Prepare(task) if task.cost.is_some() => self.slow.push(task),
            work => match work.worker() {
                Some(worker) => self.bound.entry(worker).or_default().push(work),
                None => self.usual.push(work),
            },
        }
    }

    /// Takes the work with the least slack for thread number `worker`. Batches before `opened` are open. Tasks of the others are
    /// taken only if `may_start_early` is true.
    pub(super) fn pop(
        &mut self,
        worker: usize,
        lookahead: &Lookahead,
        opened: BatchSerial,
        may_start_early: bool,
    ) -> Option<Work> {
        if let Some(work) = self.bound.get_mut(&worker).and_then(BinaryHeap::pop) {
            return Some(work);
        }
        let slack = |batch: BatchSerial, cost: Option<std::time::Duration>| {
            let cost = cost.unwrap_or(lookahead.usual_cost);
            // The time until a batch is needed is its distance times the interval. Only differences matter, so the distance is
            // counted from batch 0.
            batch.0 as f64 * lookahead.interval.as_secs_f64() - cost.as_secs_f64()
        };
        let may_start = |task: &Task| may_start_early || task.batch < opened;
        let slow = self.slow.iter().enumerate().filter(|(_, task)| may_start(task));
        let slow = slow.map(|(number, task)| (number, slack(task.batch, task.cost), task.need()));
        let slow = slow.min_by(|(_, slack, need), (_, other, other_need)| {
            slack.total_cmp(other).then_with(|| need.cmp(other_need))
        });
        match (slow, self.usual.peek()) {
            // The order of `slow` carries no meaning, so `swap_remove` is fine.
            (Some((number, least, _)), usual) if usual.is_none_or(|work| least < slack(work.need().batch, None)) => {
                Some(Work::Prepare(self.slow.swap_remove(number)))
            }
            _ => self.usual.pop(),
        }
    }

    /// Number of queued samples.
    pub(super) fn samples(&self) -> usize {
        let slow = self.slow.iter().map(|task| task.slots.len());
        let bound = self.bound.values().flatten().map(Work::samples);
        self.usual.iter().map(Work::samples).chain(bound).chain(slow).sum()
    }

    /// Whether there is work to start that is bound to a thread.
    pub(super) fn has_bound(&self) -> bool {
        self.bound.values().any(|work| !work.is_empty())
    }

    /// Whether there is work to start that any thread may take. Batches before `opened` are open. Tasks of the others count only if `may_start_early` is
    /// true.
    pub(super) fn has_more(&self, opened: BatchSerial, may_start_early: bool) -> bool {
        !self.usual.is_empty() || self.slow.iter().any(|task| may_start_early || task.batch < opened)
    }

    /// Whether slow samples are queued.
    pub(super) fn has_slow(&self) -> bool {
        !self.slow.is_empty()
    }
}
