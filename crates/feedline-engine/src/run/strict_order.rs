//! Strict and planned order: the slot of every sample is known before the sample is prepared.
//!
//! Most samples are prepared straight into their slots, several per task. A *slow* sample may start before its batch is open. It is
//! then prepared in memory of its own and copied later. Such a sample never blocks for memory: if memory is short, its task waits
//! until its batch opens. Otherwise a thread could block for a batch that nobody needs yet.

use std::collections::BTreeMap;

use feedline_memory::SlotWriter;
use feedline_order::Epoch;

use super::placement::{BatchWork, DeliveryRecord, EarlySamples, Opening, Placed, Placement};
use super::prepare::TaskReport;
use super::queue::Work;
use crate::slot_ref::{BatchSerial, SlotRef};
use crate::supply::Task;

/// Once this many slow samples are announced, no further batch is searched.
const MAX_EARLY: usize = 1024;

/// The states of a slow sample, from its announcement until its task has a writer or the sample is copied into its slot.
///
/// ```text
/// Queued ──start──> Started ──finish──> Prepared ──open──> copied into its slot
///    │                 ├──put_back──> ShortOfMemory ──open──> a task with a writer
///    └──────open───────┴──open──> Awaited ──start, put_back──> a task with a writer
///                                    └──finish──> copied into its slot
/// ```
#[derive(Debug)]
enum SlowSample {
    /// Its task is with the supply or in the queue. Its batch is not open.
    Queued,
    /// A thread prepares it in memory of its own. Its batch is not open.
    Started,
    /// Memory was short. Its task waits here until its batch opens.
    ShortOfMemory(Box<Task>),
    /// It is prepared. Its batch is not open.
    Prepared(Box<TaskReport>),
    /// Its batch is open, but its task is still with the supply, in the queue or with a thread. Holds the writer of its slot.
    Awaited(SlotWriter),
}

/// Gives every sample the slot of its turn.
#[derive(Debug, Default)]
pub(super) struct StrictOrder {
    slow: BTreeMap<SlotRef, SlowSample>,
    early: EarlySamples,
}

impl StrictOrder {
    /// Moves a slow sample into its batch, which is being opened. Returns the work that is left, or `None` while its task is still
    /// on its way.
    fn open_slow(&mut self, slot: SlotRef, state: SlowSample, writer: SlotWriter) -> Option<Work> {
        self.early.announced -= 1;
        self.early.in_use -= usize::from(matches!(state, SlowSample::Started | SlowSample::Prepared(_)));
        match state {
            SlowSample::Queued | SlowSample::Started => {
                self.slow.insert(slot, SlowSample::Awaited(writer));
                None
            }
            SlowSample::Prepared(report) => Some(Work::Place(Placed { requested: slot, at: slot, writer, report })),
            SlowSample::ShortOfMemory(task) => Some(Work::Prepare(Task { writer: Some(writer), ..*task })),
            SlowSample::Awaited(_) => unreachable!("a batch opens once"),
        }
    }
}

impl Placement for StrictOrder {
    fn open(&mut self, opening: &Opening<'_>) -> BatchWork {
        let Opening { upcoming, batch, plan, group } = *opening;
        // Indices in the dataset's own form belong to the whole batch.
        let is_whole = upcoming.given.as_ref().is_some_and(|given| given.indices.is_some());
        let group = if is_whole { batch.len() } else { group };
        let mut opened = BatchWork::default();
        let mut usual = 0..0;
        for slot in 0..batch.len() {
            let at = SlotRef { batch: batch.serial, slot };
            let slow = self.slow.remove(&at);
            if slow.is_none() {
                usual.end = slot + 1;
                // Collect consecutive usual samples until the group is full or the batch ends. A slow sample ends the group early.
                if usual.len() < group && slot + 1 < batch.len() {
                    continue;
                }
            }
            if !usual.is_empty() {
                let writer = Some(batch.claim(usual.clone()));
                opened.tasks.push(Task { writer, ..upcoming.task(plan, usual) });
            }
            usual = slot + 1..slot + 1;
            if let Some(state) = slow {
                opened.ready.extend(self.open_slow(at, state, batch.claim(slot..slot + 1)));
            }
        }
        opened
    }

    fn expects(&self, task: &Task, front: BatchSerial) -> bool {
        task.batch >= front
    }

    fn start(&mut self, task: &mut Task) -> bool {
        let slot = task.need();
        match self.slow.remove(&slot) {
            Some(SlowSample::Queued) => {
                self.slow.insert(slot, SlowSample::Started);
                self.early.in_use += 1;
                true
            }
            // Its batch has opened meanwhile, so it can be prepared straight into its slot.
            Some(SlowSample::Awaited(writer)) => {
                task.writer = Some(writer);
                true
            }
            // A jump has dropped its batch. The same holds for `None` in `finish` and `put_back`.
            None => false,
            Some(state) => unreachable!("a sample has one task, which starts once: {state:?}"),
        }
    }

    fn finish(&mut self, task: &Task, report: Box<TaskReport>) -> Vec<Placed> {
        let slot = task.need();
        match self.slow.remove(&slot) {
            Some(SlowSample::Started) => {
                self.slow.insert(slot, SlowSample::Prepared(report));
                Vec::new()
            }
            // Its batch opened while it was prepared in memory of its own.
            Some(SlowSample::Awaited(writer)) => vec![Placed { requested: slot, at: slot, writer, report }],
            None => Vec::new(),
            Some(state) => unreachable!("a sample is finished once, by the task that started: {state:?}"),
        }
    }

    fn put_back(&mut self, mut task: Task) -> Option<Task> {
        let slot = task.need();
        match self.slow.remove(&slot) {
            Some(SlowSample::Started) => {
                self.slow.insert(slot, SlowSample::ShortOfMemory(Box::new(task)));
                // Its memory was returned. Once its batch opens, its slot counts as part of the batch.
                self.early.in_use -= 1;
                None
            }
            Some(SlowSample::Awaited(writer)) => {
                task.writer = Some(writer);
                Some(task)
            }
            None => None,
            Some(state) => unreachable!("a sample is put back by the task that started: {state:?}"),
        }
    }

    fn deliver(&mut self, _: Epoch, _: BatchSerial) -> DeliveryRecord {
        DeliveryRecord::default()
    }

    fn can_announce(&self) -> bool {
        self.early.announced < MAX_EARLY
    }

    fn announce(&mut self, slot: SlotRef) {
        self.slow.insert(slot, SlowSample::Queued);
        self.early.announced += 1;
    }

    fn early(&self) -> EarlySamples {
        self.early
    }

    fn apart(&self) -> usize {
        self.early.in_use
    }

    fn clear(&mut self) -> Box<dyn Placement> {
        Box::new(std::mem::take(self))
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch_plan::Upcoming;
    use super::super::open_batch::OpenBatch;
    use super::*;
    use crate::state::Cursor;
    use feedline_data::memory::{Budget, HeldBytes};
    use feedline_data::plan::Plan;
    use feedline_data::testing::open;
    use feedline_memory::Pool;
    use std::sync::Arc;
    use std::time::Instant;

    /// One batch of two samples, of which the second is slow.
    struct Scene {
        plan: Arc<Plan>,
        pool: Pool,
        budget: Arc<Budget>,
        upcoming: Upcoming,
        order: StrictOrder,
        slow: Task,
    }

    impl Scene {
        fn new() -> Self {
            let plan = open("batch_size = 2\n[source]\nkind = \"synthetic\"\nn = 8\nshape = [4]\n").unwrap();
            let upcoming = Upcoming { serial: BatchSerial(0), cursor: Cursor::default(), given: None };
            let mut order = StrictOrder::default();
            let slow = upcoming.task(&plan, 1..2);
            order.announce(slow.need());
            let pool = Pool::new(plan.layout().slab().clone(), 1);
            Self { plan, pool, budget: Budget::new(1000), upcoming, order, slow }
        }

        fn open(&mut self) -> BatchWork {
            let slab = self.pool.open().unwrap();
            let batch = OpenBatch::new(
                &self.upcoming,
                2,
                slab,
                Arc::new(self.plan.layout().clone()),
                &self.budget,
                Instant::now(),
            );
            self.order.open(&Opening { upcoming: &self.upcoming, batch: &batch, plan: &self.plan, group: 8 })
        }

        fn start(&mut self) {
            assert!(self.order.start(&mut self.slow));
        }

        fn finish(&mut self) -> Vec<Placed> {
            let report = TaskReport { kept: HeldBytes::new(&self.budget, 16), ..TaskReport::new(&self.budget) };
            self.order.finish(&self.slow, Box::new(report))
        }

        #[track_caller]
        fn check_early(&self, announced: usize, in_use: usize) {
            assert_eq!(self.order.early(), EarlySamples { announced, in_use });
        }
    }

    #[test]
    fn a_slow_sample_that_is_prepared_before_its_batch_opens_is_copied_then() {
        let mut scene = Scene::new();
        scene.check_early(1, 0);
        scene.start();
        scene.check_early(1, 1);
        assert!(scene.finish().is_empty());
        let opened = scene.open();
        assert!(matches!(&opened.tasks[..], [task] if task.slots == (0..1)));
        assert!(matches!(&opened.ready[..], [Work::Place(placed)] if placed.at == scene.slow.need()));
        scene.check_early(0, 0);
    }

    #[test]
    fn a_slow_sample_whose_batch_opens_while_it_is_being_prepared_is_copied_afterwards() {
        let mut scene = Scene::new();
        scene.start();
        assert!(scene.open().ready.is_empty());
        scene.check_early(0, 0);
        assert!(matches!(&scene.finish()[..], [placed] if placed.at == scene.slow.need()));
    }

    #[test]
    fn a_slow_sample_that_starts_after_its_batch_opened_is_prepared_in_its_slot() {
        let mut scene = Scene::new();
        assert!(scene.open().ready.is_empty());
        scene.start();
        assert!(scene.slow.writer.is_some());
    }

    #[test]
    fn law_5_a_slow_sample_without_memory_waits_for_its_batch_and_then_for_its_slot() {
        let mut scene = Scene::new();
        scene.start();
        let task = std::mem::replace(&mut scene.slow, scene.upcoming.task(&scene.plan, 1..2));
        assert!(scene.order.put_back(task).is_none());
        scene.check_early(1, 0);
        assert!(matches!(&scene.open().ready[..], [Work::Prepare(task)] if task.writer.is_some()));
    }

    #[test]
    fn law_7_a_jump_drops_slow_samples_and_returns_their_memory() {
        let mut scene = Scene::new();
        scene.start();
        drop(scene.order.clear());
        scene.check_early(0, 0);
        assert!(scene.finish().is_empty());
        assert!(!scene.order.start(&mut scene.slow));
        assert_eq!(scene.budget.snapshot().used, 0);
    }
}
