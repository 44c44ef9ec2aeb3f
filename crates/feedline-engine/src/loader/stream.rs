//! One stream of batches for one consumer: epochs, iterations, states.
//!
//! In: a plan. Out: the batches of one epoch per iteration. The run starts with the first request and continues across epochs, so
//! there is no pause between them. The batches may come from a node instead. If the node is lost, the stream continues with a run
//! of its own or ends with an error, as configured.
//!
//! Always true: iterating again, also after a `break`, runs the next epoch. After an error the stream continues with the batch that
//! failed. The state describes what the consumer has received.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use feedline_data::plan::Plan;
use feedline_memory::{Mutex, MutexGuard, Pool};
use feedline_order::Epoch;

use super::arrival_recorder::ArrivalRecorder;
use super::batch_mapper::{BatchFunction, BatchFunctions, BatchMapper};
use super::deliverer::{Deliverer, Open};
use super::feed::Connect;
use super::progress::{Iteration, Next, Progress, Stage};
use super::segment_deliverer::SegmentDeliverer;
use crate::error::Error;
use crate::machine::Machine;
use crate::run::{Run, RunContext, context_for, keep_costs};
use crate::state::{Received, SavedState};
use crate::supply::{Supply, supply_for};

/// Upper limit of threads that map batches.
const MAX_MAPPERS: usize = 4;

/// A stream of batches.
pub struct Loader {
    pub(super) plan: Arc<Plan>,
    /// The supply of a run in this process. `None` if the samples come from shared segments.
    pub(super) supply: Option<Arc<dyn Supply>>,
    pub(super) context: RunContext,
    pub(super) machine: Machine,
    node: Option<Node>,
    /// Opens the deliverer that is used without a node: a run in this process, or the fallback of a stream from shared segments.
    own: Option<Open>,
    /// Slabs of the stream before this one, until the first run takes them.
    left_slabs: LeftSlabs,
    /// The order of delivery, if it is decided while the plan runs.
    pub(super) arrivals: Option<ArrivalRecorder>,
    /// Functions that its batches go through.
    batch_functions: OnceLock<BatchFunctions>,
    progress: Mutex<Progress>,
    /// Held while a run starts or a node is contacted, so that two consumers do not start two runs. While a node is contacted,
    /// `progress` is free, so readers of the state do not wait.
    starting: Mutex<()>,
    /// Held while a batch is taken and while the place in the stream changes. A batch is taken from the run and recorded as
    /// received under this one lock, so no jump comes in between. Nobody waits for a batch under it.
    turn: Mutex<()>,
}

/// A node that prepares the batches of a stream.
struct Node {
    open: Open,
    /// Whether the stream continues without the node if it is lost.
    continues: bool,
}

/// Slabs that one stream leaves to the next.
#[derive(Clone, Default)]
struct LeftSlabs(Arc<Mutex<Option<Pool>>>);

impl LeftSlabs {
    fn put(&self, pool: Option<Pool>) {
        *self.0.lock() = pool;
    }

    fn take(&self) -> Option<Pool> {
        self.0.lock().take()
    }

    /// Frees them, if no run took them.
    fn free(&self) {
        if let Some(pool) = self.take() {
            pool.stop_reuse();
        }
    }
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader").field("plan", &self.plan).field("progress", &self.progress).finish_non_exhaustive()
    }
}

impl Loader {
    /// A stream of `plan` from its own source.
    pub fn new(plan: Arc<Plan>, machine: &Machine) -> Self {
        let supply = supply_for(&plan, machine);
        Self::with_supply(plan, supply, machine)
    }

    /// A stream of `plan` with batches from the node that `open` contacts at the first request. If the node is lost, the stream
    /// `continues` with a run of its own, or ends.
    pub fn from_node(plan: Arc<Plan>, machine: &Machine, open: Open, continues: bool) -> Self {
        let mut loader = Self::new(plan, machine);
        loader.node = Some(Node { open, continues });
        loader
    }

    /// A stream of `plan` whose samples come from `supply`.
    pub fn with_supply(plan: Arc<Plan>, supply: Arc<dyn Supply>, machine: &Machine) -> Self {
        let context = context_for(&plan, &supply, machine);
        let (run_plan, run_supply, run_context) = (Arc::clone(&plan), Arc::clone(&supply), context.clone());
        let left_slabs = LeftSlabs::default();
        let run_slabs = left_slabs.clone();
        let own: Open = Box::new(move |received, _| {
            let (plan, supply) = (Arc::clone(&run_plan), Arc::clone(&run_supply));
            let (cursor, pool) = (received.cursor().clone(), run_slabs.take());
            Ok(Arc::new(Run::start(plan, supply, cursor, pool, run_context.clone())?))
        });
        let mut loader = Self::of(plan, context, machine.clone(), Received::nothing());
        (loader.supply, loader.own, loader.left_slabs) = (Some(supply), Some(own), left_slabs);
        loader
    }

    /// A stream of `plan` that replaces this one. It takes over the samples that are cached in memory, and the memory of batches.
    #[must_use]
    pub fn following(&self, plan: Arc<Plan>) -> Self {
        let run = self.lock().run.clone();
        let following = Self::new(plan, &self.machine);
        // In short epochs, page faults of fresh memory would take a noticeable part of the time.
        if let Some(run) = run.filter(|_| self.plan.layout().slab() == following.plan.layout().slab()) {
            following.left_slabs.put(run.leave_slabs());
        }
        following
    }

    /// A stream of `plan`'s samples from the shared segments that `connect` opens at the first request. `fallback` opens others if
    /// those are lost.
    pub fn shared(plan: &Arc<Plan>, connect: Connect, fallback: Option<Connect>) -> Result<Self, Error> {
        let production = plan.production().map_err(|error| Error::Unproducible(Box::new(error)))?;
        let production = Arc::new(production);
        let deliver_segments = |connect: Connect| -> Open {
            let (plan, production) = (Arc::clone(plan), Arc::clone(&production));
            Box::new(move |received, metrics| {
                let job_progress = received.job_progress().lock().clone();
                Ok(Arc::new(SegmentDeliverer::new(&plan, &production, connect(&job_progress)?, received, metrics)))
            })
        };
        let node = Some(Node { open: deliver_segments(connect), continues: fallback.is_some() });
        let own = fallback.map(deliver_segments);
        let received = Received::nothing_shared(plan);
        let mut loader = Self::of(Arc::clone(plan), RunContext::of_receiver(plan), Machine::default(), received);
        (loader.node, loader.own) = (node, own);
        Ok(loader)
    }

    fn of(plan: Arc<Plan>, context: RunContext, machine: Machine, received: Received) -> Self {
        let progress = Progress {
            run: None,
            has_lost_node: false,
            was_attached: false,
            received,
            iteration: Iteration(0),
            stage: Stage::Fresh,
            is_closed: false,
            iterating: None,
        };
        Self {
            supply: None,
            context,
            machine,
            node: None,
            own: None,
            left_slabs: LeftSlabs::default(),
            arrivals: plan.is_in_arrival_order().then(|| ArrivalRecorder::new(&plan)),
            batch_functions: OnceLock::new(),
            plan,
            progress: Mutex::new(progress),
            starting: Mutex::default(),
            turn: Mutex::default(),
        }
    }

    /// Lets all batches go through functions, one after the other. Called once, before the first batch.
    pub fn map_batches(&self, functions: Vec<Arc<dyn BatchFunction>>) {
        let batch_size = self.plan.settings().batch_size as u64;
        let threads = self.plan.config().num_workers.count().clamp(1, MAX_MAPPERS);
        let functions =
            BatchFunctions { functions: functions.into(), rank: self.plan.config().rank, batch_size, threads };
        self.batch_functions.set(functions).unwrap_or_else(|_| unreachable!("the caller sets them once"));
    }

    /// The deliverer, or one that maps its batches.
    fn mapping(&self, run: Arc<dyn Deliverer>, received: &Received) -> Result<Arc<dyn Deliverer>, Error> {
        match self.batch_functions.get() {
            None => Ok(run),
            Some(functions) => Ok(Arc::new(BatchMapper::start(run, functions.clone(), received)?)),
        }
    }

    /// Whether the samples come from shared segments. Then this loader prepares none itself.
    pub fn is_shared(&self) -> bool {
        self.supply.is_none()
    }

    /// The resources that it may use.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The plan of this stream.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Begins an iteration over the epoch of a loaded state or of `set_epoch`, otherwise over the next one. Starts nothing yet.
    pub fn begin(&self) -> Result<Iteration, Error> {
        let _turn = self.turn.lock();
        let mut progress = self.lock();
        if progress.is_closed {
            return Err(Error::Closed);
        }
        if progress.stage == Stage::Under {
            let next = Epoch(progress.received.epoch().0 + 1);
            progress.jump(next);
        }
        // A new run will try the failed batch again. The old one is dropped after the lock is released, because joining its threads
        // may take up to a second.
        let failed = if progress.stage == Stage::Stuck { progress.run.take() } else { None };
        progress.stage = Stage::Fresh;
        progress.iteration.0 += 1;
        let iteration = progress.iteration;
        drop(progress);
        drop(failed);
        Ok(iteration)
    }

    /// Waits up to `timeout` for the next batch of an iteration, and takes it.
    pub fn next_within(&self, iteration: Iteration, timeout: Duration) -> Result<Next, Error> {
        if self.wait_within(iteration, timeout)? { self.take(iteration) } else { Ok(Next::NotYet) }
    }

    /// Waits up to `timeout` until [`Loader::take`] has an answer. Returns whether it has. A batch counts as received only when it
    /// is taken.
    pub fn wait_within(&self, iteration: Iteration, timeout: Duration) -> Result<bool, Error> {
        // Without `turn`, so that other consumers do not wait. Nothing is taken here, and `take` checks again.
        let Some(run) = self.run_of(iteration)? else { return Ok(true) };
        match run.wait_within(timeout) {
            // The run was closed or replaced. `run_of` returns the error of a closed loader, or opens the next run.
            Err(Error::Closed) => self.run_of(iteration).map(|_| false),
            Err(error) => self.mark_stuck(iteration, error).map(|()| false),
            ready => ready,
        }
    }

    /// Takes the next batch of an iteration, if it is ready.
    pub fn take(&self, iteration: Iteration) -> Result<Next, Error> {
        let _turn = self.turn.lock();
        let Some(run) = self.run_of(iteration)? else { return Ok(Next::End) };
        let delivery = match run.take() {
            Ok(Some(delivery)) => delivery,
            Ok(None) => return Ok(Next::NotYet),
            Err(error) => return self.mark_stuck(iteration, error).map(|()| Next::NotYet),
        };
        if let Some((arrivals, (before, indices))) = self.arrivals.as_ref().zip(delivery.arrived.as_ref())
            && let Err(error) = arrivals.record(before, indices, &self.plan, &self.context.costs)
        {
            // The run has delivered the batch, but the consumer does not get it. So the run is dropped, and the next one prepares
            // the batch again. Two statements, because the lock must be released before the run is dropped.
            let failed = self.lock().run.take();
            drop(failed);
            return self.mark_stuck(iteration, error).map(|()| Next::NotYet);
        }
        let mut progress = self.lock();
        // After the last batch of an epoch the cursor already stands in the next epoch.
        let is_last = delivery.after.epoch() != delivery.batch.epoch;
        progress.received = delivery.after;
        progress.stage = if is_last { Stage::Ended } else { Stage::Under };
        if is_last {
            progress.iterating = None;
        }
        drop(progress);
        if is_last {
            keep_costs(&self.plan, &self.context.costs, &self.machine);
        }
        Ok(Next::Batch(Box::new(delivery.batch)))
    }

    /// Fails if an iteration gets no more batches: the loader was closed, a newer iteration began, or the place in the stream was
    /// changed by `set_epoch` or `load_state`.
    pub fn check(&self, iteration: Iteration) -> Result<(), Error> {
        self.lock().check(iteration)
    }

    /// The epoch of the next iteration.
    pub fn upcoming_epoch(&self) -> Epoch {
        self.lock().upcoming_epoch()
    }

    /// Makes `epoch` the epoch of the next iteration. If it is not already, drops prepared work and ends running iterations.
    pub fn set_epoch(&self, epoch: Epoch) -> Result<(), Error> {
        let _turn = self.turn.lock();
        let mut progress = self.lock();
        if progress.is_closed {
            return Err(Error::Closed);
        }
        if progress.upcoming_epoch() != epoch {
            progress.jump(epoch);
            // Iterators over the old epoch fail with `Superseded` instead of silently continuing elsewhere.
            progress.iteration.0 += 1;
        }
        Ok(())
    }

    /// What the consumer has received, as plain data.
    pub fn state(&self) -> SavedState {
        let received = self.lock().received.clone();
        received.to_state(&self.plan)
    }

    /// Continues from a state, in its epoch. Ends running iterations.
    pub fn load_state(&self, state: &SavedState) -> Result<(), Error> {
        let received = self.lock().received.clone();
        let loaded = received.loaded(state, &self.plan)?;
        let _turn = self.turn.lock();
        let mut progress = self.lock();
        progress.go_on_from(loaded);
        progress.iteration.0 += 1;
        Ok(())
    }

    /// Ends an iteration early. Frees its prepared work, memory and threads, unless the deliverer stays open between iterations.
    pub fn abandon(&self, iteration: Iteration) {
        let _turn = self.turn.lock();
        let run = {
            let mut progress = self.lock();
            if progress.iteration != iteration || progress.stage == Stage::Ended {
                return;
            }
            progress.iterating = None;
            progress.run.take_if(|run| run.ends_with_iteration())
        };
        drop(run);
    }

    /// Ends the run and its threads within a second.
    pub fn close(&self) {
        // Without `turn` and `starting`: a consumer may hold them for seconds while it contacts a node.
        let run = {
            let mut progress = self.lock();
            progress.is_closed = true;
            progress.iterating = None;
            progress.run.take()
        };
        if let Some(run) = run {
            run.close();
        }
        self.left_slabs.free();
        keep_costs(&self.plan, &self.context.costs, &self.machine);
    }

    /// Records that the next batch could not be delivered. Returns no error if the stream continues without the node and tries the
    /// batch again.
    fn mark_stuck(&self, iteration: Iteration, error: Error) -> Result<(), Error> {
        let mut progress = self.lock();
        if let Some(node) = self.node.as_ref().filter(|_| !progress.has_lost_node) {
            let goes_on = match error {
                // The node is lost.
                Error::Node { .. } => node.continues,
                // The node runs, but cannot deliver these samples.
                Error::Production { .. } => true,
                // The sample itself is bad, so it cannot be prepared here either.
                _ => false,
            };
            if goes_on && self.own.is_some() {
                tracing::warn!(%error, "this job goes on without the node");
                progress.has_lost_node = true;
                let lost = progress.run.take();
                drop(progress);
                drop(lost);
                return Ok(());
            }
        }
        if progress.iteration == iteration {
            progress.stage = Stage::Stuck;
        }
        Err(error)
    }

    /// The deliverer of an iteration, opened if necessary. `None` if the iteration has ended.
    fn run_of(&self, iteration: Iteration) -> Result<Option<Arc<dyn Deliverer>>, Error> {
        // Lock order: `turn`, `starting`, `progress`.
        let _starting = self.starting.lock();
        let mut progress = self.lock();
        progress.check(iteration)?;
        // An epoch without batches, for example fewer samples than a batch with `drop_last`. It ends at once.
        if progress.stage == Stage::Fresh && self.plan.batches_per_epoch() == 0 {
            let next = Epoch(progress.received.epoch().0 + 1);
            progress.received.jump(next);
            progress.stage = Stage::Ended;
        }
        if progress.stage == Stage::Ended {
            return Ok(None);
        }
        if progress.iterating.is_none() {
            progress.iterating = Some(self.machine.share.begin());
        }
        if let Some(run) = &progress.run {
            return Ok(Some(Arc::clone(run)));
        }
        let run = match self.node.as_ref().filter(|_| !progress.has_lost_node) {
            Some(node) => {
                let received = progress.received.clone();
                // Contacting a node may take seconds. `starting` is still held.
                drop(progress);
                let opened = (node.open)(&received, &self.context.metrics);
                progress = self.lock();
                // Another consumer may have jumped or closed the loader meanwhile.
                progress.check(iteration)?;
                match opened {
                    // The first refusal to attach is an error of the user's set-up. A node that was attached before is lost.
                    Err(error @ (Error::Node { .. } | Error::Attach { .. }))
                        if node.continues && (progress.was_attached || matches!(error, Error::Node { .. })) =>
                    {
                        tracing::warn!(%error, "this job goes on without the node");
                        progress.has_lost_node = true;
                        self.start(&progress)?
                    }
                    opened => {
                        progress.was_attached |= opened.is_ok();
                        opened?
                    }
                }
            }
            None => self.start(&progress)?,
        };
        let run = self.mapping(run, &progress.received)?;
        progress.run = Some(Arc::clone(&run));
        Ok(Some(run))
    }

    /// Opens the deliverer that is used without a node.
    fn start(&self, progress: &Progress) -> Result<Arc<dyn Deliverer>, Error> {
        let own = self.own.as_ref().expect("a stream that has no node, or continues without it, has `own`");
        own(&progress.received, &self.context.metrics)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock()
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.close();
    }
}
