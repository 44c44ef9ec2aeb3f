//! A plan in execution.
//!
//! In: a plan and a cursor. Out: batches from the cursor on, in the order of the plan, without a gap between epochs. Dropping a run
//! ends its threads and frees its memory (law 7).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use feedline_data::batch::Batch;
use feedline_data::memory::BatchNeed;
use feedline_data::plan::Plan;
use feedline_memory::{MutexGuard, Pool, Slab};
use feedline_order::{Epoch, ShareIndex};

use super::RunContext;
use super::batch_plan::BatchRequest;
use super::open_batch::OpenBatch;
use super::shared::{RunShared, RunState, SubstituteCount};
use super::stuck::Stuck;
use super::window::Window;
use crate::error::Error;
use crate::machine::CoreWeight;
use crate::metrics::{Phase, QueueSnapshot, Substitute};
use crate::state::Cursor;
use crate::supply::Supply;
use crate::threads::Threads;

/// How long [`Run::close`] waits for threads.
const CLOSE_TIME: Duration = Duration::from_millis(800);

/// A plan in execution.
#[derive(Debug)]
pub struct Run {
    shared: Arc<RunShared>,
    threads: Threads,
}

/// A delivered batch and the positions of the stream before and after it.
#[derive(Debug)]
pub struct Delivery {
    /// The batch.
    pub batch: Batch,
    /// Substitutes for bad samples, by position.
    pub substitutes: Vec<Substitute>,
    /// The cursor before this batch.
    pub before: Cursor,
    /// The cursor after this batch.
    pub after: Cursor,
    /// Its samples, if the order of delivery was decided while the plan ran.
    pub indices: Vec<ShareIndex>,
    /// The phase that took most of its samples' time.
    pub phase: Phase,
}

impl Run {
    /// Starts threads that prepare the stream of `plan` from `cursor` on. Slabs come from `pool`, or from the heap without one.
    pub fn start(
        plan: Arc<Plan>,
        supply: Arc<dyn Supply>,
        cursor: Cursor,
        pool: Option<Pool>,
        context: RunContext,
    ) -> Result<Self, Error> {
        // The order of the first epoch is computed here, before a consumer can wait for it.
        plan.find_order(&cursor.epoch_path(&plan));
        let (epoch, substituted) = (cursor.epoch, SubstituteCount::before(&cursor));
        let window = Window::of_stream(&plan, cursor);
        let run = Self::started(RunShared::new(plan, supply, window, substituted, pool, context))?;
        run.find_order(Epoch(epoch.0 + 1));
        Ok(run)
    }

    /// Starts threads that prepare requested batches, in slabs of `pool`.
    pub fn on_demand(plan: Arc<Plan>, supply: Arc<dyn Supply>, pool: Pool, context: RunContext) -> Result<Self, Error> {
        let window = Window::on_demand(&plan);
        Self::started(RunShared::new(plan, supply, window, SubstituteCount::default(), Some(pool), context))
    }

    /// Requests a batch of an on-demand run. It comes after all earlier requests.
    pub fn request(&self, batch: BatchRequest) {
        let mut progress = self.shared.lock();
        progress.window.request(batch);
        // A preparer thread opens it, not the consumer: this one, or the next that looks for work.
        self.shared.wake_one(progress);
    }

    /// Sets the weight of this run beside the others of its process, if they share the cores.
    pub fn set_weight(&self, weight: CoreWeight) {
        if let Some(claim) = &self.shared.claim {
            claim.set_weight(weight);
        }
    }

    /// Sets the deadline of the earliest waiting consumer, for on-demand runs.
    pub fn set_due(&self, due: Instant) {
        if let Some(claim) = &self.shared.claim {
            claim.set_due(due);
        }
    }

    fn started(shared: RunShared) -> Result<Self, Error> {
        let run = Self { shared: Arc::new(shared), threads: Threads::new() };
        run.start_threads().map_err(Error::Thread)?;
        let workers = run.shared.worker_pool.target();
        tracing::debug!(workers, budget_bytes = run.shared.budget.limit(), "started a run");
        Ok(run)
    }

    /// Starts missing threads. Surplus threads end by themselves.
    fn start_threads(&self) -> std::io::Result<()> {
        while let Some(number) = self.shared.reserve_worker() {
            let shared = Arc::clone(&self.shared);
            let body = move || {
                // Panics of ops are caught per sample. A panic that comes this far is a bug of the engine, and the consumer must
                // not wait for ever.
                if catch_unwind(AssertUnwindSafe(|| shared.work(number))).is_err() {
                    shared.lock().stuck = Some(Stuck::Panicked);
                    shared.has_batch.notify_all();
                }
            };
            if let Err(error) = self.threads.start(format!("feedline-{number}"), body) {
                // `reserve_worker` reserved the number. Give it back, or no later call would start this thread.
                self.shared.lock().workers.remove(&number);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Looks up the sizes of samples in the background, once samples turn out to be expensive.
    fn find_sizes(&self) {
        let shared = &self.shared;
        // Relaxed: the flag guards no data, it only makes sure that one thread is started.
        if !shared.costs.wants_sizes(&*shared.plan) || shared.has_started_sizes.swap(true, Ordering::Relaxed) {
            return;
        }
        let (plan, cancel) = (Arc::clone(&shared.plan), shared.cancel.clone());
        if let Err(error) = self.threads.start("feedline-sizes".to_owned(), move || plan.find_sizes(&cancel)) {
            tracing::debug!(%error, "sizes of samples are not looked up");
        }
    }

    /// Computes the order of an epoch in the background, before it is needed.
    fn find_order(&self, epoch: Epoch) {
        if !self.shared.plan.has_planned_order() {
            return;
        }
        let plan = Arc::clone(&self.shared.plan);
        let epoch_path = Cursor::start_of(epoch).epoch_path(&plan);
        if let Err(error) = self.threads.start("feedline-order".to_owned(), move || plan.find_order(&epoch_path)) {
            tracing::debug!(%error, "the order of the next epoch is found when it begins");
        }
    }

    /// Waits up to `timeout` for the next batch. Returns whether it is ready.
    pub fn wait_within(&self, timeout: Duration) -> Result<bool, Error> {
        let progress = self.shared.lock();
        if let Some(answer) = self.answer(&progress) {
            return answer;
        }
        let (deadline, mut progress) = (Instant::now() + timeout, progress);
        // The stall clock starts only after the first check, so a consumer that finds its batch ready never counts as waiting.
        progress.stall.begin(Instant::now());
        let (answer, mut progress) = self.wait_until(deadline, progress);
        progress.stall.end(Instant::now());
        answer
    }

    /// Whether the next batch is ready, or why it never will be. `None` if that is not known yet.
    fn answer(&self, progress: &RunState) -> Option<Result<bool, Error>> {
        if progress.is_closed {
            return Some(Err(Error::Closed));
        }
        if let Some(stuck) = &progress.stuck {
            return Some(Err(stuck.error(&self.shared.plan)));
        }
        progress.window.batches.front().is_some_and(OpenBatch::is_complete).then_some(Ok(true))
    }

    fn wait_until<'a>(
        &'a self,
        deadline: Instant,
        mut progress: MutexGuard<'a, RunState>,
    ) -> (Result<bool, Error>, MutexGuard<'a, RunState>) {
        let shared = &self.shared;
        let mut has_opened = false;
        loop {
            if let Some(answer) = self.answer(&progress) {
                return (answer, progress);
            }
            // Opening batches releases the lock, and a batch may be completed meanwhile. So the state is checked again before
            // waiting. This happens once per wait: there may be room for a batch, but no memory.
            if !has_opened && shared.has_room(&progress) {
                drop(progress);
                shared.open_ahead();
                has_opened = true;
                progress = shared.lock();
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return (Ok(false), progress);
            }
            shared.has_batch.wait_for(&mut progress, left);
            has_opened = false;
        }
    }

    /// Takes the next batch and the slab of its arrays, if it is ready.
    pub fn take(&self) -> Result<Option<(Delivery, Arc<Slab>)>, Error> {
        if !self.wait_within(Duration::ZERO)? {
            return Ok(None);
        }
        let delivery = self.shared.deliver(self.shared.lock())?;
        self.find_sizes();
        if let Some((delivery, _)) = delivery.as_ref().filter(|(delivery, _)| delivery.before.batches == 0) {
            self.find_order(Epoch(delivery.before.epoch.0 + 1));
        }
        if self.shared.adjust_worker_count() {
            // A run with at least one thread continues without the others.
            if let Err(error) = self.start_threads() {
                tracing::warn!(%error, "no further thread could be started");
            }
        }
        Ok(delivery)
    }

    /// Number of preparer threads.
    pub fn workers(&self) -> usize {
        self.shared.lock().workers.len()
    }

    /// How many batches an on-demand run looks ahead of its consumer.
    pub fn wanted_ahead(&self) -> usize {
        let lookahead = self.shared.lock().lookahead;
        lookahead.open_batches.max(usize::try_from(lookahead.batches_ahead).unwrap_or(usize::MAX))
    }

    /// Drops prepared work and continues from `cursor`.
    pub fn seek(&self, cursor: Cursor) {
        self.shared.plan.find_order(&cursor.epoch_path(&self.shared.plan));
        self.find_order(Epoch(cursor.epoch.0 + 1));
        let mut progress = self.shared.lock();
        progress.stuck = None;
        progress.substituted = SubstituteCount::before(&cursor);
        let dropped = progress.window.reset(cursor);
        // Time that was waited for a dropped batch must not count for the next one.
        progress.stall.take(Instant::now());
        progress.has_delivered = false;
        progress.pace.pause();
        let front = progress.window.front_serial();
        drop(progress);
        // The memory is returned before any thread checks for room.
        drop(dropped);
        self.shared.budget.set_front(BatchNeed { run: self.shared.number, batch: front.0 });
        self.shared.has_batch.notify_all();
        self.shared.supply.forget();
    }

    /// The batches that are ready or in preparation.
    pub fn queue(&self) -> QueueSnapshot {
        let progress = self.shared.lock();
        QueueSnapshot {
            ready_batches: progress.window.batches.iter().take_while(|batch| batch.is_complete()).count(),
            open_batches: progress.window.batches.len(),
            limit_batches: progress.lookahead.open_batches,
            waiting_samples: progress.window.queue.samples(),
            early_samples: progress.window.placement.apart(),
        }
    }

    /// Returns the pool of its slabs, for the run that replaces this one. From now on [`Run::close`] leaves their memory to the pool.
    pub fn leave_slabs(&self) -> Pool {
        self.shared.leave_slabs()
    }

    /// Ends the threads. Waits at most a second. Further calls return at once.
    pub fn close(&self) {
        let shared = &*self.shared;
        // Cancel before taking the lock: threads in a long op or read notice it while this thread waits for the lock.
        shared.cancel.cancel();
        let mut progress = shared.lock();
        if std::mem::replace(&mut progress.is_closed, true) {
            return;
        }
        let dropped = progress.window.reset(Cursor::default());
        drop(progress);
        drop(dropped);
        // Wakes threads that wait for memory. Their wait is not covered by the condition variables below.
        shared.budget.end_run(shared.number);
        shared.supply.forget();
        shared.has_tasks.notify_all();
        shared.has_batch.notify_all();
        let left = self.threads.join_within(CLOSE_TIME);
        for op in shared.plan.ops() {
            op.op().release();
        }
        shared.free_unused_slabs();
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
