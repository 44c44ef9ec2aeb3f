//! The open batches ahead of the consumer, and the slow samples beyond them.
//!
//! In: the cursor of the next batch to open, and reports of finished tasks. Out: tasks, and complete batches in order. Serial
//! numbers of batches are never reused, so a late report of a dropped batch matches nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_data::cost::Costs;
use feedline_data::memory::Budget;
use feedline_data::plan::Plan;

use super::batch_plan::{BatchPlan, BatchRequest, Upcoming};
use super::lookahead::Lookahead;
use super::open_batch::OpenBatch;
use super::placement::{BatchWork, Opening, Placement, placement_of};
use super::prepare::TaskReport;
use super::queue::{Work, WorkQueue};
use super::slabs::Slabs;
use crate::slot_ref::{BatchSerial, SlotRef};
use crate::state::Cursor;
use crate::supply::{Supply, Task};

/// Positions to examine before the lock is released for others.
const LOOK_POSITIONS: usize = 1024;

/// The open batches, the slots of their samples, and the work that waits for a thread.
#[derive(Debug)]
pub(super) struct Window {
    pub batches: VecDeque<OpenBatch>,
    pub placement: Box<dyn Placement>,
    pub queue: WorkQueue,
    batch_plan: BatchPlan,
    /// The serial number that the next call of `request` assigns. Unused by streams.
    next_requested: BatchSerial,
    /// The next batch to open.
    upcoming: Upcoming,
    /// The next batch to search for slow samples.
    unsearched: Upcoming,
}

/// The batches that were open before a jump. Dropped after the lock is released.
#[derive(Debug)]
pub(super) struct Dropped {
    _batches: VecDeque<OpenBatch>,
    _placement: Box<dyn Placement>,
    _queue: WorkQueue,
}

impl Window {
    /// A window over the stream from `cursor` on.
    pub(super) fn of_stream(plan: &Plan, cursor: Cursor) -> Self {
        Self::new(plan, BatchPlan::Stream, cursor)
    }

    /// A window over requested batches.
    pub(super) fn on_demand(plan: &Plan) -> Self {
        Self::new(plan, BatchPlan::Requested(std::collections::BTreeMap::new()), Cursor::default())
    }

    fn new(plan: &Plan, batch_plan: BatchPlan, cursor: Cursor) -> Self {
        let upcoming = Upcoming { serial: BatchSerial::default(), cursor, given: None };
        Self {
            batches: VecDeque::new(),
            placement: placement_of(plan),
            queue: WorkQueue::default(),
            batch_plan,
            next_requested: upcoming.serial,
            unsearched: upcoming.clone(),
            upcoming,
        }
    }

    /// Restarts at `cursor`. All open batches, queued work and requests are dropped.
    pub(super) fn reset(&mut self, cursor: Cursor) -> Dropped {
        // Tasks that run now will report later and name their batch by its serial number. So the new batches start above every
        // number that a task may have: those of open batches, and those of batches that were searched for slow samples.
        let serial = self.upcoming.serial.max(self.unsearched.serial);
        self.upcoming = Upcoming { serial, cursor, given: None };
        self.unsearched = self.upcoming.clone();
        self.batch_plan.forget_before(self.next_requested);
        self.next_requested = serial;
        Dropped {
            _batches: std::mem::take(&mut self.batches),
            _placement: self.placement.clear(),
            _queue: std::mem::take(&mut self.queue),
        }
    }

    /// Requests a batch after all earlier requests.
    pub(super) fn request(&mut self, batch: BatchRequest) {
        self.batch_plan.request(self.next_requested, batch);
        self.next_requested = self.next_requested.next();
    }

    /// Whether this is a stream, in contrast to requested batches.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.batch_plan, BatchPlan::Stream)
    }

    /// Whether there is a next batch to open.
    pub(super) fn has_upcoming(&self, plan: &Plan) -> bool {
        self.batch_plan.look_up(&self.upcoming, plan).is_some()
    }

    /// Serial number of the batch that the consumer needs next.
    pub(super) fn front_serial(&self) -> BatchSerial {
        self.batches.front().map_or(self.upcoming.serial, |batch| batch.serial)
    }

    /// Searches for slow samples beyond the open batches. Returns their tasks. The next call continues where this one stopped.
    pub(super) fn look_ahead(
        &mut self,
        plan: &Plan,
        supply: &dyn Supply,
        costs: &Costs,
        lookahead: &Lookahead,
    ) -> Vec<Task> {
        let mut tasks = Vec::new();
        let mut left = LOOK_POSITIONS;
        let end = BatchSerial(self.front_serial().0 + lookahead.batches_ahead);
        // Batches that are already open need no search.
        if self.unsearched.serial < self.upcoming.serial {
            self.unsearched = self.upcoming.clone();
        }
        while self.unsearched.serial < end && self.placement.can_announce() && left > 0 {
            let Some((batch, len)) = self.unsearched.step(&self.batch_plan, plan) else { break };
            // Indices in the dataset's own form belong to the whole batch, and state belongs to one worker.
            if batch.given.as_ref().is_some_and(|given| given.indices.is_some() || given.worker.is_some()) {
                left = left.saturating_sub(1);
                continue;
            }
            for (slot, request) in batch.task(plan, 0..len).requests(plan).into_iter().enumerate() {
                let cost = costs.predict(plan, request, supply.work_hint(request));
                if lookahead.is_slow(cost) {
                    self.placement.announce(SlotRef { batch: batch.serial, slot });
                    tasks.push(Task { cost: Some(cost), ..batch.task(plan, slot..slot + 1) });
                }
            }
            // An empty batch counts as one position, so that the loop ends.
            left = left.saturating_sub(len.max(1));
        }
        tasks
    }

    /// Opens the next batch and divides it into tasks of `group` slots. Returns `None` if the system has no memory left. The caller
    /// has checked [`Self::has_upcoming`].
    pub(super) fn open_next(
        &mut self,
        plan: &Plan,
        slabs: &Slabs,
        budget: &Arc<Budget>,
        group: usize,
    ) -> Option<BatchWork> {
        let began = Instant::now();
        let slab = slabs.pool.open()?;
        let (upcoming, len) =
            self.upcoming.step(&self.batch_plan, plan).expect("the caller has checked `has_upcoming`");
        self.batch_plan.forget_before(self.upcoming.serial);
        let mut batch = OpenBatch::new(&upcoming, len, slab, Arc::clone(&slabs.layout), budget, began);
        let opened = self.placement.open(&Opening { upcoming: &upcoming, batch: &batch, plan, group });
        // `times[1]` is when the tasks were made.
        batch.times[1] = Instant::now();
        self.batches.push_back(batch);
        Some(opened)
    }

    /// Whether a task may still be needed.
    pub(super) fn expects(&self, task: &Task) -> bool {
        self.placement.expects(task, self.front_serial())
    }

    /// Takes the work with the least slack for thread number `worker`. Drops tasks that are no longer needed.
    pub(super) fn next_work(&mut self, worker: usize, lookahead: &Lookahead, may_start_early: bool) -> Option<Work> {
        loop {
            let mut work = self.queue.pop(worker, lookahead, self.upcoming.serial, may_start_early)?;
            let is_needed = match &mut work {
                // A task with a writer has a slot. Only a task without one has to tell the placement that it starts.
                Work::Prepare(task) => task.writer.is_some() || self.placement.start(task),
                Work::Place(_) => true,
            };
            if is_needed {
                return Some(work);
            }
        }
    }

    /// Whether [`Self::next_work`] may find more work.
    pub(super) fn has_more(&self, may_start_early: bool) -> bool {
        self.queue.has_more(self.upcoming.serial, may_start_early)
    }

    /// Records `slots` filled slots of a batch. Returns whether the batch that the consumer needs next is now complete.
    pub(super) fn record(&mut self, serial: BatchSerial, slots: usize, report: TaskReport) -> bool {
        let front = self.front_serial();
        // Open batches have consecutive serial numbers, so the distance to the front is the index in `batches`. A report from
        // before a jump has a lower number and is dropped.
        let index = serial.0.checked_sub(front.0).and_then(|distance| usize::try_from(distance).ok());
        let Some(batch) = index.and_then(|index| self.batches.get_mut(index)) else { return false };
        batch.record(slots, report);
        serial == front && batch.is_complete()
    }
}

/// Slots per task: enough to last the supply's task time. Few enough that all threads share a batch, unless tasks go to other
/// processes.
pub(super) fn group_size(usual_cost: Duration, batch_size: usize, workers: usize, supply: &dyn Supply) -> usize {
    // The cost is zero until the first samples are measured.
    if usual_cost.is_zero() {
        return 1;
    }
    let slots = supply.task_time().as_nanos() / usual_cost.as_nanos();
    // At least four tasks per thread if the batch has enough slots, so that threads finish it at about the same time. Several
    // batches of samples that are made are open, so one task may be a whole batch.
    let most = if supply.makes_samples() { batch_size } else { batch_size / (4 * workers) };
    (slots as usize).clamp(1, most.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_data::memory::HeldBytes;
    use feedline_data::testing::open;

    #[test]
    fn law_5_a_jump_returns_the_memory_of_samples_that_wait_to_be_put_into_their_batch() {
        let plan = open("batch_size = 2\n[source]\nkind = \"synthetic\"\nn = 8\nshape = [4]\n").unwrap();
        let (slabs, budget) = (Slabs::of_plan(&plan, None, 2), Budget::new(1000));
        let mut window = Window::of_stream(&plan, Cursor::default());
        let mut slow = window.upcoming.task(&plan, 1..2);
        window.placement.announce(slow.need());
        assert!(window.placement.start(&mut slow));
        let report = TaskReport { kept: HeldBytes::new(&budget, 100), ..TaskReport::new(&budget) };
        assert!(window.placement.finish(&slow, Box::new(report)).is_empty(), "its batch is not open");
        let opened = window.open_next(&plan, &slabs, &budget, 1).unwrap();
        assert!(matches!(opened.ready[..], [Work::Place(_)]));
        opened.ready.into_iter().for_each(|work| window.queue.push(work));
        drop(window.reset(Cursor::default()));
        assert_eq!(budget.snapshot().used, 0);
    }

    #[test]
    fn slow_samples_of_open_batches_are_work_for_further_threads() {
        let plan = open("batch_size = 2\n[source]\nkind = \"synthetic\"\nn = 8\nshape = [4]\n").unwrap();
        let (slabs, budget) = (Slabs::of_plan(&plan, None, 2), Budget::new(1000));
        let mut window = Window::of_stream(&plan, Cursor::default());
        let slow = Task { cost: Some(Duration::from_secs(1)), ..window.upcoming.task(&plan, 0..1) };
        window.placement.announce(slow.need());
        window.queue.push(Work::Prepare(slow));
        assert!(!window.has_more(false), "its batch is not open");
        window.open_next(&plan, &slabs, &budget, 1).unwrap();
        assert!(window.has_more(false));
    }
}
