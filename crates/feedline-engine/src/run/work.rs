//! The life of a preparer thread: take the task with the least slack, prepare it, book it.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use feedline_data::batch::{FieldForm, Loose};
use feedline_memory::SlotWriter;

use super::arrivals::Arrived;
use super::bookkeeping::Bookkeeping;
use super::prepare::{Outcome, Preparer, Report};
use super::queue::Queued;
use super::shared::Shared;
use crate::machine::Standing;
use crate::supply::{Ready, Task};

impl Shared {
    /// The life of thread number `number`: it ends with the run, or when there are too many.
    pub fn work(self: &Arc<Self>, number: usize) {
        let _on_cores = [self.metrics.threads.cores.enter(), self.crew.on.enter()];
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
        while let Some(Queued { mut task, prepared }) = self.next_task(number) {
            let is_new = prepared.is_none();
            let outcome = prepared.map_or_else(
                || {
                    let _permit = self.standing.as_ref().map(Standing::enter);
                    self.crew.time(|| preparer.run(&mut task))
                },
                Outcome::Done,
            );
            if let Outcome::Done(report) | Outcome::PutBack(report) = &outcome
                && is_new
            {
                self.crew.leave_out(report.memory);
                self.metrics.threads.add_memory(report.memory);
            }
            match outcome {
                Outcome::Done(report) => self.settle(task, report),
                Outcome::PutBack(report) => self.put_back(task, *report),
                Outcome::Closed => return,
            }
        }
    }

    fn next_task(self: &Arc<Self>, number: usize) -> Option<Queued> {
        let mut progress = self.lock();
        let mut has_opened = false;
        loop {
            if progress.is_closed || number >= self.crew.wanted() {
                progress.workers.remove(&number);
                // It may be the one that was woken for a task.
                self.wake_one(progress);
                return None;
            }
            // Before samples of later batches take what room there is; once, because there may be room but no memory.
            if !has_opened && self.has_room(&progress) {
                drop(progress);
                self.open_ahead();
                has_opened = true;
                progress = self.lock();
                continue;
            }
            let may_start_early = progress.window.queue.has_slow() && self.has_room_early(&progress);
            let outlook = progress.outlook;
            if let Some(task) = progress.window.next_task(&outlook, may_start_early) {
                // Whoever brings tasks wakes one thread, which wakes the next: so nobody has to wake them all.
                if progress.window.has_more(may_start_early) {
                    self.wake_one(progress);
                }
                return Some(task);
            }
            has_opened = false;
            progress.idle += 1;
            let since = Instant::now();
            progress = self.has_tasks.wait(progress).unwrap_or_else(PoisonError::into_inner);
            progress.idle -= 1;
            self.metrics.threads.add_idle(since.elapsed());
        }
    }

    /// Puts what was prepared where it belongs.
    fn settle(self: &Arc<Self>, mut task: Task, mut report: Box<Report>) {
        if self.plan.is_in_arrival_order() {
            return self.settle_arrived(&task, report);
        }
        if report.is_apart {
            if task.writer.is_none() {
                let mut progress = self.lock();
                task.writer = progress.window.reserved(task.need());
                if task.writer.is_none() {
                    let left = progress.window.early.finish(task.need(), report);
                    drop(progress);
                    if let Some(report) = left {
                        self.budget.release(report.kept_bytes);
                    }
                    return;
                }
            }
            if let Some(writer) = &mut task.writer {
                self.put_in_place(writer, &mut report);
            }
        }
        let (serial, slots) = (task.serial, task.slots.len());
        // The writer must be gone before the slots count as filled: a complete batch is sealed.
        drop(task);
        self.book(serial, slots, *report);
    }

    /// Puts a sample into the place that is next, and those that waited for it.
    fn settle_arrived(self: &Arc<Self>, task: &Task, report: Box<Report>) {
        let arrived = self.lock().window.arrive(task, report, &self.budget);
        for (Arrived { serial, slot, asked_for, mut report, .. }, mut writer) in arrived {
            for prepared in &mut report.prepared {
                self.metrics.recorder.move_sample((asked_for, prepared.slot), (serial, slot));
                prepared.slot = slot;
            }
            self.put_in_place(&mut writer, &mut report);
            drop(writer);
            self.book(serial, 1, *report);
        }
    }

    fn book(self: &Arc<Self>, serial: u64, slots: usize, report: Report) {
        let mut progress = self.lock();
        let is_front_complete = progress.window.book(serial, slots, report, &self.budget);
        if is_front_complete {
            self.tell_due(&progress);
        }
        let has_room = self.has_room(&progress);
        drop(progress);
        if is_front_complete {
            self.has_batch.notify_all();
        }
        if has_room {
            self.open_ahead();
        }
    }

    /// Copies values that have a slot into it.
    fn put_in_place(&self, writer: &mut SlotWriter, report: &mut Report) {
        for prepared in &mut report.prepared {
            let mut regions = writer.slot_mut(prepared.slot);
            let values = std::mem::take(&mut prepared.loose);
            for (value, (_, form)) in values.into_iter().zip(self.plan.layout().fields()) {
                match (form, value) {
                    (FieldForm::Region { region, .. }, Loose::Array { bytes, .. }) => {
                        regions[*region].copy_from_slice(&bytes);
                        self.budget.release(bytes.len() as u64);
                        report.kept_bytes -= bytes.len() as u64;
                    }
                    (_, value) => prepared.loose.push(value),
                }
            }
        }
        report.is_apart = false;
    }

    /// Books what was done of a task, and lets the rest wait for memory: from now on in the order of the stream.
    fn put_back(&self, mut task: Task, report: Report) {
        task.cost = None;
        let mut progress = self.lock();
        if task.writer.is_none() && progress.window.arrivals.is_none() {
            let Some(left) = progress.window.early.put_back(Box::new(task)) else { return };
            // Its batch was opened meanwhile, or dropped.
            task = *left;
            task.writer = progress.window.reserved(task.need());
            if task.writer.is_none() {
                return;
            }
        }
        if task.writer.is_some() {
            progress.window.book(task.serial, report.prepared.len(), report, &self.budget);
        }
        progress.window.queue.push(task);
        self.wake_one(progress);
    }
}

impl Ready for Shared {
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
            // What the supply holds for a task had to come first.
            if is_waited_for
                && task.held.is_some()
                && let Some(front) = progress.window.batches.front_mut().filter(|front| front.serial == task.serial)
            {
                front.is_late = true;
            }
            // Tasks of batches that were dropped by a jump have nobody waiting for them.
            if progress.window.expects(&task) {
                progress.window.queue.push(task);
            }
        }
        self.wake_one(progress);
    }
}
