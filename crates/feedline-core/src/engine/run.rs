//! A plan in execution.
//!
//! In: a plan and a cursor. Out: batches, in the order of the plan from the cursor on, epoch after epoch without a seam.
//! Dropping a run ends its threads and frees everything (law 7).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use feedline_memory::Pool;

use super::prepare::Preparer;
use super::stuck::Stuck;
use super::threads::Threads;
use super::window::{OpenBatch, Window, group_size};
use super::{Budget, Cancel, Task};
use crate::batch::Batch;
use crate::cursor::Cursor;
use crate::error::Error;
use crate::metrics::{Metrics, Phase, QueueSnapshot};
use crate::order::Epoch;
use crate::plan::Plan;
use crate::supply::{Ready, Supply};

/// How long [`Run::close`] waits for threads.
const CLOSE_TIME: Duration = Duration::from_millis(800);

/// A plan in execution.
#[derive(Debug)]
pub struct Run {
    shared: Arc<Shared>,
    threads: Threads,
}

/// A batch and where the stream stands after it.
#[derive(Debug)]
pub struct Delivery {
    /// The batch.
    pub batch: Batch,
    /// What has been received once it has been.
    pub after: Cursor,
}

#[derive(Debug)]
struct Shared {
    plan: Arc<Plan>,
    supply: Arc<dyn Supply>,
    metrics: Arc<Metrics>,
    budget: Arc<Budget>,
    pool: Pool,
    cancel: Cancel,
    /// Its number among the runs that use the budget.
    number: u64,
    workers: usize,
    limit_batches: usize,
    /// Held from the opening of batches until their tasks are requested, so that tasks of a batch are never behind those of a
    /// later one: else all threads could wait for memory with samples that are not due (see [`Budget`]).
    opening: Mutex<()>,
    progress: Mutex<Progress>,
    has_tasks: Condvar,
    has_batch: Condvar,
}

#[derive(Debug)]
struct Progress {
    window: Window,
    stuck: Option<Stuck>,
    substituted: (Epoch, u64),
    /// How long the consumer has waited for the batch that is due.
    waited: Duration,
    has_delivered: bool,
    is_closed: bool,
}

impl Run {
    /// Starts threads that prepare the stream of `plan` from `cursor` on.
    ///
    /// `metrics` and `budget` outlive it: the next run of the same loader goes on counting.
    pub fn start(
        plan: Arc<Plan>,
        supply: Arc<dyn Supply>,
        cursor: Cursor,
        metrics: Arc<Metrics>,
        budget: Arc<Budget>,
    ) -> Result<Self, Error> {
        let config = plan.config();
        let workers = config.num_workers.count();
        let slab_bytes = plan.layout().slab().total_bytes() as u64;
        let limit_batches = config.prefetch_batches.unwrap_or_else(|| {
            let useful = 2.max(1 + (4 * workers).div_ceil(plan.settings().batch_size));
            let affordable = (budget.limit() / 2).checked_div(slab_bytes).unwrap_or(u64::MAX);
            useful.min(usize::try_from(affordable).unwrap_or(usize::MAX)).max(1)
        });
        let shared = Arc::new(Shared {
            pool: Pool::new(plan.layout().slab().clone(), limit_batches + 1),
            cancel: Cancel::default(),
            number: budget.number_run(),
            workers,
            limit_batches,
            opening: Mutex::default(),
            progress: Mutex::new(Progress {
                window: Window::new(cursor),
                stuck: None,
                substituted: (cursor.epoch, cursor.substituted),
                waited: Duration::ZERO,
                has_delivered: false,
                is_closed: false,
            }),
            has_tasks: Condvar::new(),
            has_batch: Condvar::new(),
            metrics,
            budget,
            plan,
            supply,
        });
        shared.budget.set_front((shared.number, 0));
        let run = Self { shared, threads: Threads::new() };
        for number in 0..workers {
            let shared = Arc::clone(&run.shared);
            let body = move || {
                if catch_unwind(AssertUnwindSafe(|| shared.work())).is_err() {
                    shared.lock().stuck = Some(Stuck::Panicked);
                    shared.has_batch.notify_all();
                }
            };
            run.threads.start(format!("feedline-{number}"), body).map_err(Error::Thread)?;
        }
        tracing::debug!(workers, limit_batches, budget_bytes = run.shared.budget.limit(), "started a run");
        Ok(run)
    }

    /// Waits up to `timeout` until the next batch can be taken; says whether it can.
    pub fn wait_within(&self, timeout: Duration) -> Result<bool, Error> {
        let shared = &self.shared;
        let began = Instant::now();
        let mut progress = shared.lock();
        let mut has_opened = false;
        loop {
            if progress.is_closed {
                return Err(Error::Closed);
            }
            if let Some(stuck) = &progress.stuck {
                return Err(stuck.error(&shared.plan));
            }
            let waited = began.elapsed();
            if progress.window.batches.front().is_some_and(OpenBatch::is_complete) {
                progress.waited += waited;
                return Ok(true);
            }
            // The lock is given up to open batches, so everything is looked at again before waiting: a batch may have been
            // completed meanwhile. Once per wait, because there may be room but no memory.
            if !has_opened && shared.has_room(&progress) {
                drop(progress);
                shared.open_ahead();
                has_opened = true;
                progress = shared.lock();
                continue;
            }
            if waited >= timeout {
                progress.waited += waited;
                return Ok(false);
            }
            let turn = timeout.saturating_sub(waited);
            progress = shared.has_batch.wait_timeout(progress, turn).unwrap_or_else(PoisonError::into_inner).0;
            has_opened = false;
        }
    }

    /// Takes the next batch, if it can be taken.
    pub fn take(&self) -> Result<Option<Delivery>, Error> {
        if !self.wait_within(Duration::ZERO)? {
            return Ok(None);
        }
        self.shared.deliver(self.shared.lock())
    }

    /// Drops prepared work and goes on from `cursor`.
    pub fn seek(&self, cursor: Cursor) {
        let mut progress = self.shared.lock();
        let dropped = progress.window.reset(cursor, &self.shared.budget);
        progress.stuck = None;
        progress.substituted = (cursor.epoch, cursor.substituted);
        progress.waited = Duration::ZERO;
        progress.has_delivered = false;
        let front = progress.window.front_serial();
        drop(progress);
        self.shared.budget.set_front((self.shared.number, front));
        self.shared.has_batch.notify_all();
        drop(dropped);
    }

    /// What waits to be taken.
    pub fn queue(&self) -> QueueSnapshot {
        let progress = self.shared.lock();
        QueueSnapshot {
            ready_batches: progress.window.batches.iter().take_while(|batch| batch.is_complete()).count(),
            open_batches: progress.window.batches.len(),
            limit_batches: self.shared.limit_batches,
            waiting_samples: progress.window.waiting.iter().map(|task| task.slots.len()).sum(),
        }
    }

    /// Ends the threads, waiting at most a second; returns at once when called again.
    pub fn close(&self) {
        let shared = &*self.shared;
        shared.cancel.cancel();
        let mut progress = shared.lock();
        if std::mem::replace(&mut progress.is_closed, true) {
            return;
        }
        let dropped = progress.window.reset(Cursor::default(), &shared.budget);
        drop(progress);
        drop(dropped);
        shared.has_tasks.notify_all();
        shared.has_batch.notify_all();
        let left = self.threads.join_within(CLOSE_TIME);
        if left > 0 {
            tracing::warn!(threads = left, "closed while an op was still running; its thread will end by itself");
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a further batch may be opened; the first always.
    fn has_room(&self, progress: &Progress) -> bool {
        let slab_bytes = self.plan.layout().slab().total_bytes() as u64;
        !progress.is_closed
            && progress.stuck.is_none()
            && progress.window.batches.len() < self.limit_batches
            && (progress.window.batches.is_empty() || self.budget.has_room_ahead(slab_bytes))
    }

    /// Opens batches while there is room and requests their tasks.
    fn open_ahead(self: &Arc<Self>) {
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let mut progress = self.lock();
        let mut tasks = Vec::new();
        while self.has_room(&progress) {
            let group = group_size(self.metrics.mean_sample_time(), self.plan.settings().batch_size, self.workers);
            match progress.window.open_next(&self.plan, &self.pool, &self.budget, group) {
                Some(opened) => tasks.extend(opened),
                None if progress.window.batches.is_empty() => progress.stuck = Some(Stuck::OutOfMemory),
                None => break,
            }
        }
        drop(progress);
        if !tasks.is_empty() {
            let ready: Arc<dyn Ready> = Arc::clone(self) as Arc<dyn Ready>;
            self.supply.request(tasks, &ready);
        }
    }

    fn deliver(self: &Arc<Self>, mut progress: MutexGuard<'_, Progress>) -> Result<Option<Delivery>, Error> {
        let Some(batch) = progress.window.batches.pop_front_if(|batch| batch.is_complete()) else { return Ok(None) };
        batch.release(&self.budget);
        let cause = if progress.has_delivered { batch.main_phase() } else { Phase::Start };
        self.metrics.add_stall(cause, std::mem::take(&mut progress.waited));
        let cursor = batch.cursor;
        let already = if progress.substituted.0 == cursor.epoch { progress.substituted.1 } else { 0 };
        let replaced = already + batch.substitutes.len() as u64;
        let stuck = match (&batch.failure, batch.substitutes.last()) {
            (Some(failure), _) => Some(Stuck::Failure(Arc::clone(failure))),
            (None, Some(last)) if replaced > self.plan.substitutes_allowed() => {
                let source = Arc::clone(&last.failure);
                Some(Stuck::TooMany { replaced, epoch: cursor.epoch, source })
            }
            _ => None,
        };
        if let Some(stuck) = stuck {
            let error = stuck.error(&self.plan);
            progress.stuck = Some(stuck);
            return Err(error);
        }
        let front = progress.window.front_serial();
        drop(progress);
        self.budget.set_front((self.number, front));
        self.open_ahead();
        let substitutes = batch.substitutes.clone();
        let assembled = batch.assemble(&self.plan);
        let mut progress = self.lock();
        let batch = match assembled {
            Ok(batch) => batch,
            Err(ragged) => {
                progress.stuck = Some(Stuck::Ragged(ragged.clone()));
                return Err(Error::Ragged(ragged));
            }
        };
        progress.substituted = (cursor.epoch, replaced);
        progress.has_delivered = true;
        drop(progress);
        self.metrics.add_substitutes(&substitutes);
        self.metrics.batches.fetch_add(1, Ordering::Relaxed);
        self.metrics.samples.fetch_add(batch.len as u64, Ordering::Relaxed);
        self.metrics.content_bytes.fetch_add(batch.content_bytes() as u64, Ordering::Relaxed);
        let after = Cursor { batches: cursor.batches + 1, substituted: replaced, ..cursor };
        Ok(Some(Delivery { batch, after: after.normalised(&self.plan) }))
    }

    /// The life of a preparer thread.
    fn work(self: &Arc<Self>) {
        let mut preparer = Preparer {
            plan: Arc::clone(&self.plan),
            supply: Arc::clone(&self.supply),
            metrics: Arc::clone(&self.metrics),
            budget: Arc::clone(&self.budget),
            workspace: Preparer::workspace(&self.plan, &self.budget, self.cancel.clone()),
            run: self.number,
            current_op: None,
        };
        while let Some(mut task) = self.next_task() {
            let Some(report) = preparer.run(&mut task) else { return };
            let (serial, slots) = (task.serial, task.slots.len());
            // The writer must be gone before the slots count as filled: a complete batch is sealed.
            drop(task);
            let mut progress = self.lock();
            let is_front_complete = progress.window.book(serial, slots, report, &self.budget);
            let has_room = self.has_room(&progress);
            drop(progress);
            if is_front_complete {
                self.has_batch.notify_all();
            }
            if has_room {
                self.open_ahead();
            }
        }
    }

    fn next_task(&self) -> Option<Task> {
        let mut progress = self.lock();
        loop {
            if progress.is_closed {
                return None;
            }
            if let Some(task) = progress.window.waiting.pop() {
                return Some(task);
            }
            progress = self.has_tasks.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Ready for Shared {
    fn ready(&self, tasks: Vec<Task>) {
        let mut progress = self.lock();
        if progress.is_closed {
            return;
        }
        // Tasks of batches that were dropped by a jump have nobody waiting for them.
        let front = progress.window.front_serial();
        progress.window.waiting.extend(tasks.into_iter().filter(|task| task.serial >= front));
        drop(progress);
        self.has_tasks.notify_all();
    }
}
