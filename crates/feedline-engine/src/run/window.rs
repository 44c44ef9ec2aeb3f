//! The batches that are open ahead of the consumer, and the slow samples beyond them.
//!
//! In: the cursor of the next batch to open, reports of finished tasks. Out: tasks, and complete batches in order. Batches
//! have serial numbers that are never used again, so a late report of a batch that was dropped finds nothing.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use feedline_data::cost::Costs;
use feedline_data::memory::Budget;
use feedline_data::plan::Plan;
use feedline_memory::{Pool, SlotWriter};

use super::agenda::{Agenda, Stretch, Upcoming};
use super::arrivals::{Arrivals, Arrived};
use super::early::{Adopted, Early, Seat};
use super::open_batch::OpenBatch;
use super::outlook::Outlook;
use super::prepare::Report;
use super::queue::{Queue, Queued};
use crate::state::Cursor;
use crate::supply::{Supply, Task};

/// A task is made long enough to last about this long, so that taking it costs little beside it.
const TASK_TIME: Duration = Duration::from_micros(100);
/// Slow samples that are announced at most.
const MOST_EARLY: usize = 1024;
/// Positions that are looked at in one go, because others wait for the lock.
const LOOK_POSITIONS: usize = 1024;

/// The open batches, the samples that start early, and the tasks that wait for a thread.
#[derive(Debug)]
pub(super) struct Window {
    pub batches: VecDeque<OpenBatch>,
    pub early: Early,
    /// Places for samples, where what is ready first comes first.
    pub arrivals: Option<Arrivals>,
    pub queue: Queue,
    agenda: Agenda,
    /// The next number for a batch that is asked for.
    next_asked: u64,
    /// The next batch to open, and the next to look at.
    upcoming: Upcoming,
    unseen: Upcoming,
}

/// The tasks of a batch that was opened.
#[derive(Debug, Default)]
pub(super) struct Opened {
    /// To be requested of the supply.
    pub wanted: Vec<Task>,
    /// Nothing has to be loaded for these any more.
    pub ready: Vec<Queued>,
}

fn task_of(batch: &Upcoming, plan: &Plan, slots: std::ops::Range<usize>) -> Task {
    let (serial, course, first_turn) = (batch.serial, batch.cursor.course(plan), batch.cursor.turns(plan));
    let asked = Instant::now();
    Task { serial, course, first_turn, slots, asked, writer: None, cost: None, held: None }
}

impl Window {
    /// Batches from `cursor` on, one after the other.
    pub fn of_stream(plan: &Plan, cursor: Cursor) -> Self {
        Self::new(plan, Agenda::Stream, cursor)
    }

    /// Batches that are asked for.
    pub fn on_demand(plan: &Plan) -> Self {
        Self::new(plan, Agenda::Asked(std::collections::BTreeMap::new()), Cursor::default())
    }

    fn new(plan: &Plan, agenda: Agenda, cursor: Cursor) -> Self {
        let upcoming = Upcoming { serial: 0, cursor };
        let (batches, early, queue) = (VecDeque::new(), Early::default(), Queue::default());
        let arrivals = plan.is_in_arrival_order().then(|| Arrivals::new(plan));
        Self { batches, early, arrivals, queue, agenda, next_asked: 0, unseen: upcoming.clone(), upcoming }
    }

    /// Goes on from `cursor`; gives what was open, to be dropped without the lock.
    pub fn reset(&mut self, cursor: Cursor, budget: &Budget) -> (VecDeque<OpenBatch>, Queue) {
        for batch in &self.batches {
            batch.release(budget);
        }
        self.early.clear(budget);
        for report in self.arrivals.iter_mut().flat_map(Arrivals::clear) {
            budget.release(report.kept_bytes);
        }
        // Prepared before their batch was open, not yet put into it: nobody else will return what they hold.
        self.queue.early_reports().for_each(|report| budget.release(report.kept_bytes));
        // Numbers that were given to samples ahead are not used again.
        let serial = self.upcoming.serial.max(self.unseen.serial);
        self.upcoming = Upcoming { serial, cursor };
        self.unseen = self.upcoming.clone();
        // What was asked for is not wanted any more.
        self.agenda.forget_before(self.next_asked);
        self.next_asked = serial;
        (std::mem::take(&mut self.batches), std::mem::take(&mut self.queue))
    }

    /// Asks for a batch behind all that were asked for before.
    pub fn ask(&mut self, stretch: Stretch) {
        self.agenda.ask(self.next_asked, stretch);
        self.next_asked += 1;
    }

    /// Whether its batches follow each other without being asked for.
    pub fn is_stream(&self) -> bool {
        matches!(self.agenda, Agenda::Stream)
    }

    /// Whether it is known what the next batch to open is.
    pub fn has_upcoming(&self, plan: &Plan) -> bool {
        self.agenda.look_up(&self.upcoming, plan).is_some()
    }

    /// The number of the batch that the consumer needs next.
    pub fn front_serial(&self) -> u64 {
        self.batches.front().map_or(self.upcoming.serial, |batch| batch.serial)
    }

    /// Looks for slow samples beyond the open batches; gives their tasks.
    pub fn look_ahead(&mut self, plan: &Plan, supply: &dyn Supply, costs: &Costs, outlook: &Outlook) -> Vec<Task> {
        let mut tasks = Vec::new();
        let mut left = LOOK_POSITIONS;
        let end = self.front_serial() + outlook.batches_ahead;
        if self.unseen.serial < self.upcoming.serial {
            self.unseen = self.upcoming.clone();
        }
        while self.unseen.serial < end && self.early.len() < MOST_EARLY && left > 0 {
            let Some((batch, len)) = self.unseen.step(&self.agenda, plan) else { break };
            let all = task_of(&batch, plan, 0..len);
            for (slot, wanted) in all.wanted(plan).into_iter().enumerate() {
                let cost = costs.predict(plan, wanted, supply.effort(wanted));
                if outlook.is_slow(cost) {
                    self.early.announce((batch.serial, slot));
                    tasks.push(Task { cost: Some(cost), ..task_of(&batch, plan, slot..slot + 1) });
                }
            }
            left = left.saturating_sub(len.max(1));
        }
        tasks
    }

    /// Opens the next batch; gives its tasks of `group` slots each, or nothing if the system has no memory left.
    pub fn open_next(&mut self, plan: &Plan, pool: &Pool, budget: &Budget, group: usize) -> Option<Opened> {
        let began = Instant::now();
        let slab = pool.open()?;
        let (opening, len) = self.upcoming.step(&self.agenda, plan).expect("asked only for what is upcoming");
        self.agenda.forget_before(self.upcoming.serial);
        let mut batch = OpenBatch::new(opening.serial, opening.cursor.clone(), len, slab, began);
        batch.hold(budget);
        let mut opened = Opened::default();
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.expect(opening.serial, &opening.cursor, plan, len);
            (0..len).for_each(|slot| batch.reserve(slot, batch.claim(slot..slot + 1)));
            opened.wanted.extend((0..len).map(|slot| task_of(&opening, plan, slot..slot + 1)));
            batch.times[1] = Instant::now();
            self.batches.push_back(batch);
            return Some(opened);
        }
        let mut usual = 0..0;
        for slot in 0..len {
            let adopted = self.early.adopt((opening.serial, slot));
            if adopted.is_none() {
                usual.end = slot + 1;
                if usual.len() < group && slot + 1 < len {
                    continue;
                }
            }
            if !usual.is_empty() {
                let writer = Some(batch.claim(usual.clone()));
                opened.wanted.push(Task { writer, ..task_of(&opening, plan, usual) });
            }
            usual = slot + 1..slot + 1;
            let writer = if adopted.is_some() { Some(batch.claim(slot..slot + 1)) } else { None };
            match (adopted, writer) {
                (Some(Adopted::Done(report)), writer) => {
                    let task = Task { writer, ..task_of(&opening, plan, slot..slot + 1) };
                    opened.ready.push(Queued { task, prepared: Some(report) });
                }
                (Some(Adopted::PutBack(task)), writer) => opened.ready.push(Task { writer, ..*task }.into()),
                (Some(Adopted::Coming), Some(writer)) => batch.reserve(slot, writer),
                _ => {}
            }
        }
        batch.times[1] = Instant::now();
        self.batches.push_back(batch);
        Some(opened)
    }

    /// Whether a task may still be needed.
    pub fn expects(&self, task: &Task) -> bool {
        match &self.arrivals {
            Some(arrivals) => arrivals.expects(task),
            None => task.serial >= self.front_serial(),
        }
    }

    /// Takes the task with the least slack, with the way to its memory if its batch is open.
    pub fn next_task(&mut self, outlook: &Outlook, may_start_early: bool) -> Option<Queued> {
        loop {
            let mut queued = self.queue.pop(outlook, self.upcoming.serial, may_start_early)?;
            if self.arrivals.is_some() {
                return Some(queued);
            }
            let task = &mut queued.task;
            if task.writer.is_none() {
                task.writer = self.reserved(task.need());
            }
            // One that has no place in a batch and is not expected is left from before a jump.
            if task.writer.is_some() || self.early.start(task.need()) {
                return Some(queued);
            }
        }
    }

    /// Whether a further task may be taken.
    pub fn has_more(&self, may_start_early: bool) -> bool {
        self.queue.has_more(self.upcoming.serial, may_start_early)
    }

    /// Gives places to a sample that is prepared, and to those that waited for it, with the ways to their memory.
    pub fn arrive(&mut self, task: &Task, report: Box<Report>, budget: &Budget) -> Vec<(Arrived, SlotWriter)> {
        let Some(arrivals) = self.arrivals.as_mut().filter(|arrivals| arrivals.expects(task)) else {
            // It is left from before a jump.
            budget.release(report.kept_bytes);
            return Vec::new();
        };
        let arrived = arrivals.arrive(task, report);
        let placed = arrived.into_iter().filter_map(|arrived| {
            let batch = self.open_batch(arrived.serial)?;
            batch.note_number(arrived.number);
            batch.take_reserved(arrived.slot).map(|writer| (arrived, writer))
        });
        placed.collect()
    }

    /// The way to the memory of a sample that was started early, if its batch is open now.
    pub fn reserved(&mut self, (serial, slot): Seat) -> Option<SlotWriter> {
        self.open_batch(serial)?.take_reserved(slot)
    }

    fn open_batch(&mut self, serial: u64) -> Option<&mut OpenBatch> {
        let number = serial.checked_sub(self.front_serial())?;
        self.batches.get_mut(usize::try_from(number).ok()?)
    }

    /// Books a finished task; says whether the batch that the consumer needs next is now complete.
    pub fn book(&mut self, serial: u64, slots: usize, report: Report, budget: &Budget) -> bool {
        let is_front = serial == self.front_serial();
        let Some(batch) = self.open_batch(serial) else {
            budget.release(report.kept_bytes);
            return false;
        };
        batch.book(slots, report);
        is_front && batch.is_complete()
    }
}

/// Slots per task: as many as last [`TASK_TIME`], but so few that all threads share a batch.
pub(super) fn group_size(usual_cost: Duration, batch_size: usize, workers: usize) -> usize {
    if usual_cost.is_zero() {
        return 1;
    }
    let wanted = TASK_TIME.as_nanos() / usual_cost.as_nanos();
    (wanted as usize).clamp(1, (batch_size / (4 * workers)).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_data::testing::open;

    #[test]
    fn law_5_a_jump_returns_the_memory_of_samples_that_wait_to_be_put_into_their_batch() {
        let plan = open("batch_size = 2\n[source]\nkind = \"synthetic\"\nn = 8\nshape = [4]\n").unwrap();
        let (pool, budget) = (Pool::new(plan.layout().slab().clone(), 2), Budget::new(1000));
        let mut window = Window::of_stream(&plan, Cursor::default());
        window.early.announce((0, 1));
        assert!(window.early.start((0, 1)));
        budget.hold(100);
        let report = Report { kept_bytes: 100, is_apart: true, ..Report::default() };
        assert!(window.early.finish((0, 1), Box::new(report)).is_none());
        let opened = window.open_next(&plan, &pool, &budget, 1).unwrap();
        assert_eq!(opened.ready.len(), 1);
        opened.ready.into_iter().for_each(|task| window.queue.push(task));
        drop(window.reset(Cursor::default(), &budget));
        assert_eq!(budget.snapshot().used, 0);
    }

    #[test]
    fn slow_samples_of_open_batches_are_work_for_further_threads() {
        let plan = open("batch_size = 2\n[source]\nkind = \"synthetic\"\nn = 8\nshape = [4]\n").unwrap();
        let (pool, budget) = (Pool::new(plan.layout().slab().clone(), 2), Budget::new(1000));
        let mut window = Window::of_stream(&plan, Cursor::default());
        let slow = Task { cost: Some(Duration::from_secs(1)), ..task_of(&window.upcoming, &plan, 0..1) };
        window.early.announce(slow.need());
        window.queue.push(slow);
        assert!(!window.has_more(false), "its batch is not open");
        window.open_next(&plan, &pool, &budget, 1).unwrap();
        assert!(window.has_more(false));
    }
}
