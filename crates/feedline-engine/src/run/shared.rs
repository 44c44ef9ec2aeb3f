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
use super::slabs::Slabs;
use super::stall::Stall;
use super::stuck::Stuck;
use super::window::{Window, group_size};
use super::worker_pool::WorkerPool;
use crate::error::Error;
use crate::machine::CoreClaim;
use crate::metrics::{DeliveredBatch, Metrics, Phase};
use crate::state::Cursor;
use crate::supply::{Ready, Supply};

/// If at least this many batches may be open, slots are reserved for slow samples that are announced but not started. A slow sample
/// that has started always takes a slot.
const MIN_BATCHES_TO_RESERVE: usize = 8;

#[derive(Debug)]
pub(super) struct RunShared {
    pub plan: Arc<Plan>,
    pub supply: Arc<dyn Supply>,
    pub metrics: Arc<Metrics>,
    pub budget: Arc<Budget>,
    pub costs: Arc<Costs>,
    slabs: Mutex<Slabs>,
    pub cancel: Cancel,
    /// The number of this run, from `Budget::number_run`.
    pub number: u64,
    pub worker_pool: WorkerPool,
    /// The claim of this run on the cores of the process. `None` if this run does not share cores.
    pub claim: Option<CoreClaim>,
    /// Set once, when the thread that looks up the sizes of samples is started.
    pub has_started_sizes: AtomicBool,
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
    /// Numbers of the threads that run or are about to start.
    pub workers: BTreeSet<usize>,
    /// Number of threads without work.
    pub idle: usize,
    /// Sum of all waits of the consumer up to the last delivery.
    waited_ever: Duration,
    pub stuck: Option<Stuck>,
    pub substituted: SubstituteCount,
    /// Waits of the consumer since the last delivery.
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
    /// Substitutes in the cursor's epoch, up to the cursor.
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
        substituted: SubstituteCount,
        pool: Option<Pool>,
        context: RunContext,
    ) -> Self {
        let RunContext { metrics, budget, costs, cores, share } = context;
        let config = plan.config();
        let worker_pool = WorkerPool::new(config.num_workers, share);
        let workers = worker_pool.target();
        let slab_bytes = plan.layout().slab().total_bytes() as u64;
        let batch_size = plan.settings().batch_size;
        let limits = Limits {
            batch_size,
            asked: config.prefetch_batches,
            // Four samples per thread or what the supply reads ahead, whichever is more, plus the batch that the consumer needs
            // next.
            useful: 2.max(1 + (4 * workers).max(supply.samples_ahead()).div_ceil(batch_size)),
            affordable: affordable_batches(&budget, slab_bytes),
            is_first_come: config.start == Start::FirstCome || !window.placement.can_announce(),
        };
        let pace = Pace::default();
        let lookahead = Lookahead::new(&limits, &pace, costs.spread());
        // Set before any thread starts: without a front, every batch of a run counts as due.
        let number = budget.number_run();
        budget.set_front(BatchNeed { run: number, batch: 0 });
        Self {
            slabs: Mutex::new(Slabs::of_plan(&plan, pool, lookahead.open_batches + 1)),
            cancel: Cancel::default(),
            number,
            worker_pool,
            claim: cores.map(|cores| cores.claim()),
            has_started_sizes: AtomicBool::new(false),
            limits,
            opening: Mutex::default(),
            progress: Mutex::new(RunState {
                substituted,
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

    /// Releases the lock and wakes one idle thread. One is enough, because each thread wakes the next if there is more work
    /// (`next_work`).
    pub(super) fn wake_one(&self, progress: MutexGuard<'_, RunState>) {
        let has_idle = progress.idle > 0;
        // Notify without the lock, or the woken thread would block on it at once.
        drop(progress);
        if has_idle {
            self.has_tasks.notify_one();
        }
    }

    /// Reserves and returns the number of a missing thread, if one is missing.
    pub(super) fn reserve_worker(&self) -> Option<usize> {
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
            // Threads read the target under this lock and keep the lock until they wait. After taking it once here, each thread has
            // either read the new target, or is waiting and gets the notification.
            drop(self.lock());
            self.has_tasks.notify_all();
        }
        has_changed
    }

    /// Whether another batch may be opened. If none is open, slots and memory are not checked.
    pub(super) fn has_room(&self, progress: &RunState) -> bool {
        let slab_bytes = self.slabs.lock().slab_bytes();
        let (open, limit) = (progress.window.batches.len(), progress.lookahead.open_batches);
        let slots = limit * self.limits.batch_size;
        let EarlySamples { announced, in_use } = progress.window.placement.early();
        // Announced samples, started or not, reserve up to a quarter of the slots. Started ones occupy theirs even beyond that.
        let expected = if limit >= MIN_BATCHES_TO_RESERVE { announced.min(slots / 4) } else { 0 };
        let early = in_use.max(expected);
        let has_slots = (open + 1) * self.limits.batch_size + early <= slots;
        !progress.is_closed
            && progress.stuck.is_none()
            && progress.window.has_upcoming(&self.plan)
            // With no open batch the consumer could wait for ever, so one batch may always be opened.
            && (open == 0 || (has_slots && self.budget.has_room_ahead(slab_bytes)))
    }

    /// Whether a sample may start before its batch is open. Its size is unknown, so this only checks that a quarter of the budget
    /// is free.
    pub(super) fn has_room_early(&self, progress: &RunState) -> bool {
        let taken = progress.window.batches.len() * self.limits.batch_size + progress.window.placement.early().in_use;
        taken < progress.lookahead.open_batches * self.limits.batch_size && self.budget.has_room_ahead(0)
    }

    /// The limits of the look-ahead. The bytes of a slab may have changed, so the number of affordable ones may have, too.
    fn limits(&self) -> Limits {
        let affordable = affordable_batches(&self.budget, self.slabs.lock().slab_bytes());
        Limits { affordable, ..self.limits }
    }

    /// The slabs of batches that are opened now.
    fn slabs(&self) -> Slabs {
        let mut slabs = self.slabs.lock();
        if let Some(layout) = self.supply.layout() {
            slabs.change_layout(layout);
        }
        slabs.clone()
    }

    /// Returns the pool, for the run that replaces this one.
    pub(super) fn leave_slabs(&self) -> Pool {
        self.slabs.lock().leave()
    }

    /// Frees the memory that waits for further batches, unless another run got the pool. Batches that a user still has keep theirs.
    pub(super) fn free_unused_slabs(&self) {
        self.slabs.lock().end();
    }

    /// Opens batches while there is room, searches for slow samples beyond them, and requests their tasks.
    pub(super) fn open_ahead(self: &Arc<Self>) {
        // Lock order: `opening` before `progress`. `opening` stays locked while the supply gets the tasks, so `Ready::ready` must
        // not call this function: it may run on this thread.
        let _opening = self.opening.lock();
        let mut progress = self.lock();
        let lookahead = progress.lookahead;
        let mut tasks = Vec::new();
        let mut has_ready = progress.window.queue.has_slow();
        while self.has_room(&progress) {
            let batch_size = self.plan.settings().batch_size;
            let workers = self.worker_pool.target();
            let group = group_size(lookahead.usual_cost, batch_size, workers, &*self.supply);
            let slabs = self.slabs();
            match progress.window.open_next(&self.plan, &slabs, &self.budget, group) {
                Some(opened) => {
                    tasks.extend(opened.tasks);
                    has_ready |= !opened.ready.is_empty();
                    opened.ready.into_iter().for_each(|work| progress.window.queue.push(work));
                }
                // The system has no memory, and no open batch will free some. `stuck` makes `has_room` false, which ends the loop.
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

    /// Computes when the consumer of a stream will have to wait if no further batch is finished, and updates the deadline at the
    /// core scheduler.
    pub(super) fn update_deadline(&self, progress: &RunState) {
        let Some(claim) = self.claim.as_ref().filter(|_| progress.window.is_stream()) else { return };
        let ready = progress.window.batches.iter().take_while(|batch| batch.is_complete()).count();
        claim.set_due(progress.pace.due_after(ready));
    }

    /// Takes the next batch, if it is complete. The lock is released in between, so callers must not run this and a jump at the
    /// same time (`Loader::turn`).
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
        let already = if progress.substituted.epoch == cursor.epoch { progress.substituted.samples } else { 0 };
        let substituted = already + batch.substitutes.len() as u64;
        let stuck = match (&batch.failure, batch.substitutes.last()) {
            (Some(failure), _) => Some(Stuck::Failure(Arc::clone(failure))),
            (None, Some(last)) if substituted > self.plan.substitutes_allowed() => {
                let source = Arc::clone(&last.failure);
                Some(Stuck::TooMany { substituted, epoch: cursor.epoch, source })
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
        self.update_deadline(&progress);
        progress.lookahead = Lookahead::new(&self.limits(), &progress.pace, self.costs.spread());
        let front = progress.window.front_serial();
        // A preparer thread opens the next batch, not the consumer.
        self.wake_one(progress);
        self.budget.set_front(BatchNeed { run: self.number, batch: front.0 });
        let substitutes = batch.substitutes.clone();
        // Building the batch copies values without a fixed shape, so it happens without the lock.
        let assembled = batch.assemble();
        let mut progress = self.lock();
        let (batch, slab) = match assembled {
            Ok(assembled) => assembled,
            Err(ragged) => {
                progress.stuck = Some(Stuck::Ragged(ragged.clone()));
                return Err(Error::Ragged(ragged));
            }
        };
        progress.substituted = SubstituteCount { epoch: cursor.epoch, samples: substituted };
        progress.has_delivered = true;
        drop(progress);
        self.metrics.add_substitutes(&substitutes);
        self.metrics.add_batch(&batch);
        self.metrics.traffic.deliver(cursor.epoch);
        let Cursor { epoch, batches: number, .. } = cursor;
        self.metrics.recorder.add_batch(DeliveredBatch { batch: serial, epoch, number, samples: len, times });
        let rest = rest.or_else(|| cursor.rest.clone());
        let after = Cursor { batches: cursor.batches + 1, substituted, rest, ..cursor };
        let after = after.normalised(&self.plan);
        Ok(Some((Delivery { batch, substitutes, before: cursor, after, indices, phase }, slab)))
    }
}

/// Batches that may be open by default. They take at most half of the budget; `Budget::has_room_ahead` also keeps a quarter free.
fn affordable_batches(budget: &Budget, slab_bytes: u64) -> usize {
    let affordable = (budget.limit() / 2).checked_div(slab_bytes).unwrap_or(u64::MAX);
    usize::try_from(affordable).unwrap_or(usize::MAX)
}
