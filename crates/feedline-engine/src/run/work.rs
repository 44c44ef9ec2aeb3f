//! The loop of a preparer thread: take the task with the least slack, prepare it, record the result.

use std::sync::Arc;
use std::time::Instant;

use feedline_data::batch::{FieldForm, Unslotted};
use feedline_memory::SlotWriter;

use super::bookkeeping::Bookkeeping;
use super::placement::Placed;
use super::prepare::{Outcome, Preparer, TaskReport};
use super::queue::Work;
use super::shared::RunShared;
use crate::machine::{CoreClaim, Permit};
use crate::slot_ref::BatchSerial;
use crate::supply::{Ready, Task};

impl RunShared {
    /// Runs thread number `number` until the run ends or has too many threads.
    pub(super) fn work(self: &Arc<Self>, number: usize) {
        // Measures until the thread ends how long it runs on a core, for the metrics and for the size of the pool.
        let _on_cores = [self.metrics.threads.cores.enter(), self.worker_pool.on.enter()];
        let mut preparer = Preparer {
            plan: Arc::clone(&self.plan),
            supply: Arc::clone(&self.supply),
            metrics: Arc::clone(&self.metrics),
            budget: Arc::clone(&self.budget),
            costs: Arc::clone(&self.costs),
            workspace: Preparer::workspace(&self.plan, &self.budget, number, self.cancel.clone()),
            number,
            run: self.number,
            books: Bookkeeping::new(Arc::clone(&self.metrics), self.plan.ops().len()),
        };
        // The runs of this process share its cores, and the permit decides who starts (`machine/cores.rs`). It is held only while the
        // thread has work.
        let mut permit = None;
        while let Some(work) = self.next_work(number, &mut permit) {
            let mut task = match work {
                Work::Prepare(task) => task,
                Work::Place(placed) => {
                    self.place(placed);
                    continue;
                }
            };
            permit = permit.map(Permit::renew).or_else(|| self.claim.as_ref().map(CoreClaim::enter));
            let outcome = self.worker_pool.time(|| preparer.run(&mut task));
            if let Outcome::Done(report) | Outcome::PutBack(report) = &outcome {
                // Waiting for memory is neither work nor blocking on storage.
                self.worker_pool.leave_out(report.memory);
                self.metrics.threads.add_memory(report.memory);
            }
            match outcome {
                Outcome::Done(report) => self.settle(task, report),
                Outcome::PutBack(report) => self.put_back(task, *report),
                Outcome::Closed => return,
            }
        }
    }

    /// Blocks until there is work. Opens batches meanwhile. Returns `None` if the thread should end. While it blocks, it gives its
    /// permit back.
    fn next_work(self: &Arc<Self>, number: usize, permit: &mut Option<Permit<'_>>) -> Option<Work> {
        let mut progress = self.lock();
        let mut has_opened = false;
        loop {
            if progress.is_closed || number >= self.worker_pool.target() {
                progress.workers.remove(&number);
                // This thread may have consumed the wake-up for a new task, so it passes it on.
                self.wake_one(progress);
                return None;
            }
            // Open batches before slow samples of later batches use up the room. Only once until the thread has waited: `has_room`
            // stays true if the system has no memory for a batch, and the loop would spin.
            if !has_opened && self.has_room(&progress) {
                drop(progress);
                self.open_ahead();
                has_opened = true;
                progress = self.lock();
                continue;
            }
            // Checking for room takes the lock of the budget, so it is skipped if no slow sample is queued.
            let may_start_early = progress.window.queue.has_slow() && self.has_room_early(&progress);
            let lookahead = progress.lookahead;
            if let Some(work) = progress.window.next_work(number, &lookahead, may_start_early) {
                // New tasks wake one thread. Each thread wakes the next one if there is more work.
                if progress.window.has_more(may_start_early) {
                    self.wake_one(progress);
                }
                return Some(work);
            }
            has_opened = false;
            *permit = None;
            progress.idle += 1;
            let since = Instant::now();
            // Waiting releases the lock. `wake_one` reads `idle` under this lock, so it misses no thread that waits.
            self.has_tasks.wait(&mut progress);
            progress.idle -= 1;
            self.metrics.threads.add_idle(since.elapsed());
        }
    }

    /// Records the samples of a finished task. A sample without a slot is placed now, or later by another thread.
    fn settle(self: &Arc<Self>, task: Task, report: Box<TaskReport>) {
        if task.writer.is_some() {
            let (batch, slots) = (task.batch, task.slots.len());
            // Drops the writer before the slots count as filled: a complete batch is sealed, which fails while a writer exists.
            drop(task);
            return self.record(batch, slots, *report);
        }
        let placed = self.lock().window.placement.finish(&task, report);
        // Frees the bytes that the supply holds for this task. `place` below may open a batch and request more.
        drop(task);
        for placed in placed {
            self.place(placed);
        }
    }

    /// Copies a sample from memory of its own into its slot, and records the slot as filled.
    fn place(self: &Arc<Self>, placed: Placed) {
        let Placed { requested, at, mut writer, mut report } = placed;
        // In arrival order a sample may get another slot than the one that its task was made for.
        if requested != at {
            self.metrics.recorder.move_sample(requested, at);
            report.prepared.iter_mut().for_each(|prepared| prepared.slot = at.slot);
        }
        self.put_in_place(&mut writer, &mut report);
        // As in `settle`: the writer must be gone before the slot counts as filled.
        drop(writer);
        self.record(at.batch, 1, *report);
    }

    fn record(self: &Arc<Self>, batch: BatchSerial, slots: usize, report: TaskReport) {
        let mut progress = self.lock();
        let is_front_complete = progress.window.record(batch, slots, report);
        if is_front_complete {
            self.update_deadline(&progress);
        }
        // This task may have just returned the memory that the next batch waited for.
        let has_room = self.has_room(&progress);
        drop(progress);
        if is_front_complete {
            self.has_batch.notify_all();
        }
        if has_room {
            self.open_ahead();
        }
    }

    /// Copies the values that have a region in the slab. The others stay in `loose`.
    fn put_in_place(&self, writer: &mut SlotWriter, report: &mut TaskReport) {
        for prepared in &mut report.prepared {
            let mut regions = writer.slot_mut(prepared.slot);
            let values = std::mem::take(&mut prepared.loose);
            for (value, (_, form)) in values.into_iter().zip(self.plan.layout().fields()) {
                match (form, value) {
                    // The batch has booked its whole slab, so the bytes outside the slab are no longer booked.
                    (FieldForm::Region { region, .. }, Unslotted::Array { bytes, .. }) => {
                        regions[*region].copy_from_slice(&bytes);
                        report.kept.release(bytes.len() as u64);
                    }
                    (_, value) => prepared.loose.push(value),
                }
            }
        }
    }

    /// Takes back a task for lack of memory. A slow sample whose batch is not open stays with the placement until it opens. Any
    /// other task is queued again.
    fn put_back(&self, mut task: Task, report: TaskReport) {
        // A task without a cost waits for memory at its next attempt (`Preparer::attempt`).
        task.cost = None;
        let mut progress = self.lock();
        if task.writer.is_none() {
            let Some(again) = progress.window.placement.put_back(task) else { return };
            task = again;
        }
        if task.writer.is_some() {
            // Samples that were prepared before memory ran out. The batch is not complete: the task keeps at least one slot.
            progress.window.record(task.batch, report.prepared.len(), report);
        }
        progress.window.queue.push(Work::Prepare(task));
        self.wake_one(progress);
    }
}

impl Ready for RunShared {
    fn expects(&self, task: &Task) -> bool {
        let progress = self.lock();
        !progress.is_closed && progress.window.expects(task)
    }

    fn ready(&self, tasks: Vec<Task>) {
        let mut progress = self.lock();
        if progress.is_closed {
            return;
        }
        let is_waited_for = progress.stall.is_running();
        for task in tasks {
            // The consumer waits for this batch, and its bytes arrive only now. So the wait counts as reading.
            if is_waited_for
                && task.was_read_ahead
                && let Some(front) = progress.window.batches.front_mut().filter(|front| front.serial == task.batch)
            {
                front.is_late = true;
            }
            // A jump may have dropped the batch of this task.
            if progress.window.expects(&task) {
                progress.window.queue.push(Work::Prepare(task));
            }
        }
        // Any thread may be the one that a task is bound to.
        if progress.window.queue.has_bound() {
            drop(progress);
            self.has_tasks.notify_all();
        } else {
            self.wake_one(progress);
        }
    }
}
