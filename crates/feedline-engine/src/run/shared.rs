//! State shared by the threads of a run and its consumer: the window, the queue, and the delivery of batches.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use feedline_data::cost::Costs;
use feedline_data::memory::{BatchNeed, Budget, Cancel};
use feedline_data::plan::{Plan, Start};
use feedline_memory::{Condvar, Mutex, MutexGuard, Pool, Slab};
use feedline_order::Epoch;

use super::RunContext;
use super::handle::Delivery;
use super::lookahead::{Limits, Lookahead, Pace};
use super::placement::{DeliveryRecord, EarlySamples};
use super::stall::Stall;
use super::stuck::Stuck;
use super::window::{Window, group_size};
use super::worker_pool::WorkerPool;
use crate::error::Error;
use crate::machine::CoreClaim;
use crate::metrics::{DeliveredBatch, Metrics, Phase};
use crate::state::Cursor;
use crate::supply::{Ready, Supply};

/// If fewer batches than this may be open, no room is reserved for announced samples. Samples that have started count in any case.
const BATCHES_TO_SPARE: usize = 8;

#[derive(Debug)]
pub(super) struct RunShared {
    pub plan: Arc<Plan>,
    pub supply: Arc<dyn Supply>,
    pub metrics: Arc<Metrics>,
    pub budget: Arc<Budget>,
    pub costs: Arc<Costs>,
    pool: Pool,
    pub cancel: Cancel,
    /// The number of this run in the budget.
    pub number: u64,
    pub worker_pool: WorkerPool,
    /// The claim of this run on cores that several runs share.
    pub claim: Option<CoreClaim>,
    /// Whether a thread is looking up the sizes of samples.
    pub finds_sizes: AtomicBool,
    limits: Limits,
    /// Held from the opening of batches until their tasks are requested, so that requests reach the supply in the order of need.
    opening: Mutex<()>,
    progress: Mutex<RunState>,
    pub has_tasks: Condvar,
    pub has_batch: Condvar,
}

#[derive(Debug)]
pub(super) struct RunState {
    pub window: Window,
    pub lookahead: Lookahead,
    pub pace: Pace,
    /// Numbers of the running threads.
    pub workers: BTreeSet<usize>,
    /// Number of threads without work.
    pub idle: usize,
    /// Total time that the consumer has waited.
    waited_ever: Duration,
    pub stuck: Option<Stuck>,
    pub replaced: SubstituteCount,
    /// Time that consumers have waited for the next batch.
    pub stall: Stall,
    pub has_delivered: bool,
    pub is_closed: bool,
}

/// Number of substituted samples of an epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SubstituteCount {
    epoch: Epoch,
    samples: u64,
}

impl SubstituteCount {
    /// The count before a cursor.
    pub(super) fn before(cursor: &Cursor) -> Self {
        Self { epoch: cursor.epoch, samples: cursor.substituted }
    }
}

impl RunShared {
    /// A run over `window`. Slabs come from `pool`, or from the heap without one.
    pub(super) fn new(
        plan: Arc<Plan>,
        supply: Arc<dyn Supply>,
        window: Window,
        replaced: SubstituteCount,
        pool: Option<Pool>,
        context: RunContext,
    ) -> Self {
        let RunContext { metrics, budget, costs, cores, share } = context;
        let config = plan.config();
        let worker_pool = WorkerPool::new(config.num_workers, share);
        let workers = worker_pool.target();
        let slab_bytes = plan.layout().slab().total_bytes() as u64;
        let batch_size = plan.settings().batch_size;
        // Half of the budget is for open batches, the other half for samples in preparation.
        let affordable = (budget.limit() / 2).checked_div(slab_bytes).unwrap_or(u64::MAX);
        let limits = Limits {
            batch_size,
            asked: config.prefetch_batches,
            // Four samples per thread or what the supply reads ahead, whichever is more, plus the batch that the consumer needs
            // next.
            useful: 2.max(1 + (4 * workers).max(supply.samples_ahead()).div_ceil(batch_size)),
            affordable: usize::try_from(affordable).unwrap_or(usize::MAX),
            is_first_come: config.start == Start::FirstCome || !window.placement.can_announce(),
        };
        let pace = Pace::default();
        let lookahead = Lookahead::new(&limits, &pace, costs.spread());
        // The first batch has number 0. It may take memory that later batches may not.
        let number = budget.number_run();
        budget.set_front(BatchNeed { run: number, batch: 0 });
        Self {
            pool: pool.unwrap_or_else(|| Pool::new(plan.layout().slab().clone(), lookahead.open_batches + 1)),
            cancel: Cancel::default(),
            number,
            worker_pool,
            claim: cores.map(|cores| cores.claim()),
            finds_sizes: AtomicBool::new(false),
            limits,
            opening: Mutex::default(),
            progress: Mutex::new(RunState {
                replaced,
                window,
                lookahead,
                pace,
                workers: BTreeSet::new(),
                idle: 0,
                waited_ever: Duration::ZERO,
                stuck: None,
                stall: Stall::default(),
                has_delivered: false,
                is_closed: false,
            }),
            has_tasks: Condvar::new(),
            has_batch: Condvar::new(),
            metrics,
            budget,
            costs,
            plan,
            supply,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RunState> {
        self.progress.lock()
    }

    /// Wakes one idle thread, if there is one.
    pub(super) fn wake_one(&self, progress: MutexGuard<'_, RunState>) {
        let has_idle = progress.idle > 0;
        // Notify without the lock, or the woken thread would block on it at once.
        drop(progress);
        if has_idle {
            self.has_tasks.notify_one();
        }
    }

    /// The number of a thread to start, if one is missing.
    pub(super) fn next_worker(&self) -> Option<usize> {
        let mut progress = self.lock();
        let missing = (0..self.worker_pool.target()).find(|number| !progress.workers.contains(number))?;
        progress.workers.insert(missing);
        Some(missing)
    }

    /// Checks whether another number of threads would be better. Returns true if the number changed.
    pub(super) fn adjust_worker_count(&self) -> bool {
        let waited = self.lock().waited_ever;
        let has_changed = self.worker_pool.adjust(waited);
        if let Some(claim) = &self.claim {
            claim.set_computing(self.worker_pool.computing());
        }
        if has_changed {
            // A thread that read the old number is waiting by now, because it held the lock from reading until waiting. So it will
            // be woken.
            drop(self.lock());
            self.has_tasks.notify_all();
        }
        has_changed
    }

    /// Whether another batch may be opened. If none is open, slots and memory are not checked.
    pub(super) fn has_room(&self, progress: &RunState) -> bool {
        let slab_bytes = self.plan.layout().slab().total_bytes() as u64;
        let (open, limit) = (progress.window.batches.len(), progress.lookahead.open_batches);
        let slots = limit * self.limits.batch_size;
        let EarlySamples { announced, in_use } = progress.window.placement.early();
        // Announced samples that have not started need room soon. They reserve at most a quarter of the slots.
        let expected = if limit >= BATCHES_TO_SPARE { announced.min(slots / 4) } else { 0 };
        let early = in_use.max(expected);
        let has_slots = (open + 1) * self.limits.batch_size + early <= slots;
        !progress.is_closed
            && progress.stuck.is_none()
            && progress.window.has_upcoming(&self.plan)
            // With no open batch the consumer could wait for ever, so one batch may always be opened.
            && (open == 0 || (has_slots && self.budget.has_room_ahead(slab_bytes)))
    }

    /// Whether a sample may start before its batch is open.
    pub(super) fn has_room_early(&self, progress: &RunState) -> bool {
        let taken = progress.window.batches.len() * self.limits.batch_size + progress.window.placement.early().in_use;
        taken < progress.lookahead.open_batches * self.limits.batch_size && self.budget.has_room_ahead(0)
    }

    /// Opens batches while there is room, searches for slow samples beyond them, and requests their tasks.
    pub(super) fn open_ahead(self: &Arc<Self>) {
        // Lock order: `opening` before `progress`.
        let _opening = self.opening.lock();
        let mut progress = self.lock();
        let lookahead = progress.lookahead;
        let mut tasks = Vec::new();
        let mut has_ready = progress.window.queue.has_slow();
        while self.has_room(&progress) {
            let group = group_size(lookahead.usual_cost, self.plan.settings().batch_size, self.worker_pool.target());
            match progress.window.open_next(&self.plan, &self.pool, &self.budget, group) {
                Some(opened) => {
                    tasks.extend(opened.tasks);
                    has_ready |= !opened.ready.is_empty();
                    opened.ready.into_iter().for_each(|work| progress.window.queue.push(work));
                }
                // The system has no memory, and no open batch will free some: waiting would not help.
                None if progress.window.batches.is_empty() => progress.stuck = Some(Stuck::OutOfMemory),
                None => break,
            }
        }
        tasks.extend(progress.window.look_ahead(&self.plan, &*self.supply, &self.costs, &lookahead));
        if has_ready {
            self.wake_one(progress);
        } else {
            drop(progress);
        }
        if !tasks.is_empty() {
            let ready: Arc<dyn Ready> = Arc::clone(self) as Arc<dyn Ready>;
            // Without the state lock: the supply may call `ready` from this thread.
            self.supply.request(tasks, &ready);
        }
    }

    /// Computes when the consumer of a stream will have to wait if no further batch is finished, and tells the core scheduler.
    pub(super) fn tell_due(&self, progress: &RunState) {
        let Some(claim) = self.claim.as_ref().filter(|_| progress.window.is_stream()) else { return };
        let ready = progress.window.batches.iter().take_while(|batch| batch.is_complete()).count();
        claim.set_due(progress.pace.due_after(ready));
    }

    /// Takes the next batch, if it is complete.
    pub(super) fn deliver(
        self: &Arc<Self>,
        mut progress: MutexGuard<'_, RunState>,
    ) -> Result<Option<(Delivery, Arc<Slab>)>, Error> {
        let Some(mut batch) = progress.window.batches.pop_front_if(|batch| batch.is_complete()) else {
            return Ok(None);
        };
        // Before the wake-up below: the woken thread checks for room.
        batch.held.release_all();
        let phase = batch.main_phase();
        let waited = progress.stall.take(Instant::now());
        progress.waited_ever += waited;
        self.metrics.stalls.add(if progress.has_delivered { phase } else { Phase::Start }, waited);
        let (cursor, serial) = (batch.cursor.clone(), batch.serial);
        let (len, times) = (batch.len(), batch.times);
        // The limit on substitutes holds per epoch.
        let already = if progress.replaced.epoch == cursor.epoch { progress.replaced.samples } else { 0 };
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
            // The batch is lost, but the cursor stays before it: the error is repeated until the consumer seeks.
            progress.stuck = Some(stuck);
            return Err(error);
        }
        let DeliveryRecord { indices, rest } = progress.window.placement.deliver(cursor.epoch, serial);
        progress.pace.record(Instant::now());
        self.tell_due(&progress);
        progress.lookahead = Lookahead::new(&self.limits, &progress.pace, self.costs.spread());
        let front = progress.window.front_serial();
        // A preparer thread opens the next batch, not the consumer.
        self.wake_one(progress);
        self.budget.set_front(BatchNeed { run: self.number, batch: front.0 });
        let substitutes = batch.substitutes.clone();
        // Building the batch copies values without a fixed shape, so it happens without the lock.
        let assembled = batch.assemble(&self.plan);
        let mut progress = self.lock();
        let (batch, slab) = match assembled {
            Ok(assembled) => assembled,
            Err(ragged) => {
                progress.stuck = Some(Stuck::Ragged(ragged.clone()));
                return Err(Error::Ragged(ragged));
            }
        };
        progress.replaced = SubstituteCount { epoch: cursor.epoch, samples: replaced };
        progress.has_delivered = true;
        drop(progress);
        self.metrics.add_substitutes(&substitutes);
        self.metrics.add_batch(&batch);
        self.metrics.traffic.deliver(cursor.epoch);
        let Cursor { epoch, batches: number, .. } = cursor;
        self.metrics.recorder.add_batch(DeliveredBatch { batch: serial, epoch, number, samples: len, times });
        let rest = rest.or_else(|| cursor.rest.clone());
        let after = Cursor { batches: cursor.batches + 1, substituted: replaced, rest, ..cursor };
        let after = after.normalised(&self.plan);
        Ok(Some((Delivery { batch, substitutes, before: cursor, after, indices, phase }, slab)))
    }
}
