//! A plan in execution.
//!
//! In: a plan and a cursor. Out: batches, in the order of the plan from the cursor on, epoch after epoch without a seam.
//! Dropping a run ends its threads and frees everything (law 7).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use feedline_memory::Pool;

use super::prepare::Preparer;
use super::threads::Threads;
use super::window::{Window, group_size};
use super::{Budget, Cancel, Task};
use crate::batch::{Batch, RaggedError};
use crate::cursor::Cursor;
use crate::error::{Error, SampleFailure};
use crate::metrics::{Metrics, Phase, QueueSnapshot};
use crate::order::Epoch;
use crate::plan::Plan;
use crate::supply::Supply;

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
    workers: usize,
    limit_batches: usize,
    state: Mutex<State>,
    has_tasks: Condvar,
    has_batch: Condvar,
}

#[derive(Debug)]
struct State {
    window: Window,
    stuck: Option<Stuck>,
    substituted: (Epoch, u64),
    waiting_since: Option<Instant>,
    has_delivered: bool,
    is_closed: bool,
}

/// A batch that cannot be delivered: the stream stays before it.
#[derive(Debug)]
enum Stuck {
    Ragged(Box<RaggedError>),
    Failure(Arc<SampleFailure>),
    TooMany { replaced: u64, epoch: Epoch, source: Arc<SampleFailure> },
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
        let limit = budget.snapshot().limit;
        let slab_bytes = plan.layout().slab().total_bytes() as u64;
        let limit_batches = config.prefetch_batches.unwrap_or_else(|| {
            let useful = 2.max(1 + (4 * workers).div_ceil(plan.settings().batch_size));
            let affordable = (limit / 2).checked_div(slab_bytes).unwrap_or(u64::MAX);
            useful.min(usize::try_from(affordable).unwrap_or(usize::MAX)).max(1)
        });
        let shared = Arc::new(Shared {
            metrics,
            budget,
            pool: Pool::new(plan.layout().slab().clone(), limit_batches + 1),
            cancel: Cancel::default(),
            workers,
            limit_batches,
            state: Mutex::new(State {
                window: Window::new(cursor),
                stuck: None,
                substituted: (cursor.epoch, cursor.substituted),
                waiting_since: None,
                has_delivered: false,
                is_closed: false,
            }),
            has_tasks: Condvar::new(),
            has_batch: Condvar::new(),
            plan,
            supply,
        });
        let run = Self { shared, threads: Threads::new() };
        for number in 0..workers {
            let shared = Arc::clone(&run.shared);
            run.threads.start(format!("feedline-{number}"), move || shared.work()).map_err(Error::Thread)?;
        }
        tracing::debug!(workers, limit_batches, budget_bytes = limit, "started a run");
        Ok(run)
    }

    /// Waits up to `timeout` for the next batch.
    pub fn next_within(&self, timeout: Duration) -> Result<Option<Delivery>, Error> {
        let shared = &*self.shared;
        let deadline = Instant::now() + timeout;
        let mut state = shared.lock();
        loop {
            if state.is_closed {
                return Err(Error::Closed);
            }
            if let Some(stuck) = &state.stuck {
                return Err(stuck.error(&shared.plan));
            }
            shared.refill(&mut state);
            if state.window.batches.front().is_some_and(super::window::OpenBatch::is_complete) {
                return shared.deliver(state).map(Some);
            }
            let now = Instant::now();
            state.waiting_since.get_or_insert(now);
            if now >= deadline {
                return Ok(None);
            }
            state = shared.has_batch.wait_timeout(state, deadline - now).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Drops prepared work and goes on from `cursor`.
    pub fn seek(&self, cursor: Cursor) {
        let mut state = self.shared.lock();
        state.window.reset(cursor, &self.shared.budget);
        state.stuck = None;
        state.substituted = (cursor.epoch, cursor.substituted);
        state.waiting_since = None;
        state.has_delivered = false;
    }

    /// Whether the next batch cannot be delivered.
    pub fn is_stuck(&self) -> bool {
        self.shared.lock().stuck.is_some()
    }

    /// What waits to be taken.
    pub fn queue(&self) -> QueueSnapshot {
        let shared = &*self.shared;
        let state = shared.lock();
        QueueSnapshot {
            ready_batches: state.window.batches.iter().take_while(|batch| batch.is_complete()).count(),
            open_batches: state.window.batches.len(),
            limit_batches: shared.limit_batches,
            waiting_samples: state.window.waiting.0.iter().map(|task| task.slots.len()).sum(),
        }
    }

    /// Ends the threads, waiting at most a second; returns at once when called again.
    pub fn close(&self) {
        let shared = &*self.shared;
        shared.cancel.cancel();
        let mut state = shared.lock();
        state.is_closed = true;
        state.window.reset(Cursor::default(), &shared.budget);
        drop(state);
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
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens batches while there is room for them; the first is always opened.
    fn refill(&self, state: &mut State) {
        let slab_bytes = self.plan.layout().slab().total_bytes() as u64;
        let mut has_new = false;
        while state.window.batches.len() < self.limit_batches
            && (state.window.batches.is_empty() || self.budget.has_room(slab_bytes))
        {
            let batch_size = self.plan.settings().batch_size;
            let group = group_size(self.metrics.mean_sample_time(), batch_size, self.workers);
            let tasks = state.window.open_next(&self.plan, &self.pool, &self.budget, group);
            self.supply.request(tasks, &mut state.window.waiting);
            has_new = true;
        }
        if has_new {
            self.has_tasks.notify_all();
        }
    }

    fn deliver(&self, mut state: MutexGuard<'_, State>) -> Result<Delivery, Error> {
        let batch = state.window.batches.pop_front().expect("the caller saw a complete batch");
        batch.release(&self.budget);
        if let Some(since) = state.waiting_since.take() {
            let cause = if state.has_delivered { batch.main_phase() } else { Phase::Start };
            self.metrics.add_stall(cause, since.elapsed());
        }
        let cursor = batch.cursor;
        let already = if state.substituted.0 == cursor.epoch { state.substituted.1 } else { 0 };
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
            state.stuck = Some(stuck);
            return Err(error);
        }
        self.refill(&mut state);
        drop(state);
        let substitutes = batch.substitutes.clone();
        let assembled = batch.assemble(&self.plan);
        let mut state = self.lock();
        let batch = match assembled {
            Ok(batch) => batch,
            Err(ragged) => {
                state.stuck = Some(Stuck::Ragged(ragged.clone()));
                return Err(Error::Ragged(ragged));
            }
        };
        state.substituted = (cursor.epoch, replaced);
        state.has_delivered = true;
        drop(state);
        self.metrics.add_substitutes(&substitutes);
        self.metrics.batches.fetch_add(1, Ordering::Relaxed);
        self.metrics.samples.fetch_add(batch.len as u64, Ordering::Relaxed);
        self.metrics.content_bytes.fetch_add(batch.content_bytes() as u64, Ordering::Relaxed);
        let after = Cursor { batches: cursor.batches + 1, substituted: replaced, ..cursor };
        Ok(Delivery { batch, after: after.normalised(&self.plan) })
    }

    /// The life of a preparer thread.
    fn work(&self) {
        let mut preparer = Preparer {
            plan: Arc::clone(&self.plan),
            supply: Arc::clone(&self.supply),
            metrics: Arc::clone(&self.metrics),
            budget: Arc::clone(&self.budget),
            workspace: Preparer::workspace(&self.plan, self.cancel.clone()),
        };
        while let Some(mut task) = self.next_task() {
            let Some(report) = preparer.run(&mut task) else { return };
            let (serial, slots) = (task.serial, task.slots.len());
            // The writer must be gone before the slots count as filled: a complete batch is sealed.
            drop(task);
            let mut state = self.lock();
            let is_front_complete = state.window.book(serial, slots, report, &self.budget);
            if !state.is_closed {
                self.refill(&mut state);
            }
            drop(state);
            if is_front_complete {
                self.has_batch.notify_all();
            }
        }
    }

    fn next_task(&self) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(task) = state.window.waiting.0.pop() {
                return Some(task);
            }
            state = self.has_tasks.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Stuck {
    fn error(&self, plan: &Plan) -> Error {
        match self {
            Self::Ragged(ragged) => Error::Ragged(ragged.clone()),
            Self::Failure(failure) => Error::Sample(Arc::clone(failure)),
            Self::TooMany { replaced, epoch, source } => Error::TooManyFailures {
                replaced: *replaced,
                allowed: plan.substitutes_allowed(),
                epoch: *epoch,
                source: Arc::clone(source),
            },
        }
    }
}
