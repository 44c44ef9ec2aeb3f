//! Connects the segment scheduler with the engine that produces the segments.
//!
//! In: a plan that many jobs share; jobs that join, lease and leave, from threads of their own. Out: leases of segments. One thread
//! collects finished segments. Dropping the carousel ends all work within a second (law 7).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use feedline_data::memory::Budget;
use feedline_data::plan::Plan;
use feedline_memory::{Condvar, Mutex, Pool, Slab};
use feedline_order::{Epoch, Segments};

use super::pace::JobPace;
use super::scheduler::SegmentScheduler;
use super::{BadSlot, JobId, Leased, Provenance, SegmentContent};
use crate::error::Error;
use crate::machine::{CoreWeight, Machine};
use crate::metrics::{Phase, Snapshot, StallMeter};
use crate::run::{BatchRequest, Delivery, PositionRange, Run, RunContext, context_for, keep_costs};
use crate::state::JobProgress;
use crate::supply::{Supply, supply_for};

/// Interval at which the collecting thread checks whether it should end.
const POLL: Duration = Duration::from_millis(100);
/// How long a job waits for room before it is rejected.
const JOIN_TIMEOUT: Duration = Duration::from_secs(3);
/// With fewer segments than this nothing can be produced while another one is read.
const FEWEST: u64 = 2;

/// Where segments are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// On the heap, for jobs of this process.
    Heap,
    /// In memory that other processes can map.
    Shared,
}

/// One production of samples for many jobs.
#[derive(Debug)]
pub struct Carousel {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    plan: Arc<Plan>,
    segments: Segments,
    /// Upper limit of live segments.
    limit: usize,
    run: Run,
    supply: Arc<dyn Supply>,
    context: RunContext,
    machine: Machine,
    state: Mutex<CarouselState>,
    changed: Condvar,
    /// Held from the scheduler's decision until the engine has the requests, so that the engine gets them in the order of
    /// `requested`. Locked before `state`.
    requesting: Mutex<()>,
    is_closed: AtomicBool,
    produced_samples: AtomicU64,
    leased_samples: AtomicU64,
    stalls: StallMeter,
}

#[derive(Debug)]
struct CarouselState {
    scheduler: SegmentScheduler<SegmentContent>,
    /// Segments requested from the engine, in order, with the time of the request.
    requested: VecDeque<(u64, Instant)>,
    /// The pace of each job.
    paces: BTreeMap<JobId, JobPace>,
    /// The weight of each job. The production has that of its heaviest job.
    weights: BTreeMap<JobId, CoreWeight>,
    failed: Option<Arc<Error>>,
    /// Number of changes, so that a waiting thread does not miss one.
    changes: u64,
}

impl Carousel {
    /// Starts a production for jobs with the values and fields of `plan`. Its segments take at most `memory_bytes`.
    pub fn start(plan: &Plan, machine: &Machine, memory: Memory, memory_bytes: u64) -> Result<Self, Error> {
        let segments = plan.segments().clone();
        let plan = Arc::new(plan.production().map_err(|error| Error::Unproducible(Box::new(error)))?);
        let layout = plan.layout().slab().clone();
        let slab_bytes = layout.total_bytes() as u64;
        if slab_bytes.saturating_mul(FEWEST) > memory_bytes {
            return Err(Error::SharedMemory { needs: slab_bytes * FEWEST, has: memory_bytes });
        }
        let limit = usize::try_from(memory_bytes / slab_bytes.max(1)).unwrap_or(usize::MAX);
        // More is of no use: this is two rounds of every segment, plus one segment in production.
        let limit = limit.min(segments.count() as usize * 2 + 1);
        let pool = match memory {
            Memory::Heap => Pool::new(layout, limit),
            Memory::Shared => Pool::shared(layout, limit),
        };
        let supply = supply_for(&plan, machine);
        let mut context = context_for(&plan, &supply, machine);
        // Room for two segments in production, in addition to samples in preparation.
        // Times 4/3, because the engine keeps a quarter of its budget free for samples in preparation (`Budget::has_room_ahead`).
        let budget = context.budget.limit().saturating_add(FEWEST * slab_bytes).saturating_mul(4) / 3;
        context.budget = Budget::fixed(budget, machine.memory_bytes);
        let run = Run::on_demand(Arc::clone(&plan), Arc::clone(&supply), pool, context.clone())?;
        let state = CarouselState {
            scheduler: SegmentScheduler::new(segments.clone(), limit),
            requested: VecDeque::new(),
            paces: BTreeMap::new(),
            weights: BTreeMap::new(),
            failed: None,
            changes: 0,
        };
        let inner = Arc::new(Inner {
            plan,
            segments,
            limit,
            run,
            supply,
            context,
            machine: machine.clone(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            requesting: Mutex::default(),
            is_closed: AtomicBool::new(false),
            produced_samples: AtomicU64::new(0),
            leased_samples: AtomicU64::new(0),
            stalls: StallMeter::default(),
        });
        let producing = Arc::clone(&inner);
        let thread = thread::Builder::new().name("feedline-carousel".to_owned()).spawn(move || producing.produce());
        Ok(Self { inner, thread: Some(thread.map_err(Error::Thread)?) })
    }

    /// The producing plan. Its batches are segments.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.inner.plan
    }

    /// How the data is divided.
    pub fn segments(&self) -> &Segments {
        &self.inner.segments
    }

    /// Adds a job. Fails if other jobs hold so many segments for some seconds that there is no room for it.
    pub fn join(&self, job_progress: &JobProgress, weight: CoreWeight) -> Result<JobId, Error> {
        let (deadline, mut seen) = (Instant::now() + JOIN_TIMEOUT, 0);
        let joined = loop {
            // Checked first, because `change` requests segments and wakes all waiting threads, even if the job does not join.
            let has_room = self.inner.state.lock().scheduler.has_room_for_job();
            let join = |scheduler: &mut SegmentScheduler<SegmentContent>| {
                scheduler.has_room_for_job().then(|| scheduler.join(job_progress))
            };
            let joined = if has_room { self.inner.change(join) } else { None };
            let left = deadline.saturating_duration_since(Instant::now());
            if joined.is_some() || left.is_zero() {
                break joined;
            }
            // Another job may be about to give a segment back.
            seen = self.wait_change(seen, left.min(POLL));
        };
        if let Some(job) = joined {
            self.inner.weigh(|weights| {
                weights.insert(job, weight);
            });
        }
        let segment_bytes = self.inner.plan.layout().slab().total_bytes() as u64;
        joined.ok_or_else(|| Error::NodeFull { segments: self.inner.limit, bytes: segment_bytes })
    }

    /// Makes a job continue from another progress. It keeps its leases.
    pub fn change(&self, job: JobId, job_progress: &JobProgress) {
        self.inner.change(|scheduler| scheduler.change(job, job_progress));
    }

    /// Removes a job and ends its leases.
    pub fn leave(&self, job: JobId) {
        self.inner.state.lock().paces.remove(&job);
        self.inner.weigh(|weights| {
            weights.remove(&job);
        });
        let held = self.inner.change(|scheduler| scheduler.leave(job));
        for content in held {
            // The job may still read arrays over the segment, so its memory must not return to the pool.
            content.slab.retire();
        }
    }

    /// Ends a job's lease of a segment.
    pub fn give_back(&self, job: JobId, number: u64) {
        self.inner.change(|scheduler| scheduler.give_back(job, number));
    }

    /// Leases the next segment to a job. Waits up to `timeout` for it. `None` if there is still none. Fails once production failed.
    pub fn lease_within(&self, job: JobId, timeout: Duration) -> Result<Option<Leased<SegmentContent>>, Arc<Error>> {
        let inner = &*self.inner;
        let deadline = Instant::now() + timeout;
        let mut state = inner.state.lock();
        let leased = loop {
            if let Some(failed) = &state.failed {
                return Err(Arc::clone(failed));
            }
            let leased = state.scheduler.lease(job);
            let pace = state.paces.entry(job).or_default();
            if let Some(leased) = leased {
                pace.lease(Instant::now());
                break leased;
            }
            if pace.wait(Instant::now()) {
                // Only when the wait begins: to make room for a job with nothing to read, the scheduler may now drop segments that
                // are assigned ahead to other jobs.
                // `request_segments` takes `requesting` before `state`, so the state must be released first.
                drop(state);
                inner.request_segments();
                state = inner.state.lock();
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            inner.changed.wait_for(&mut state, left);
        };
        drop(state);
        let positions = inner.segments.positions(leased.segment_round.segment);
        inner.leased_samples.fetch_add(positions.end - positions.start - leased.skipped, Ordering::Relaxed);
        inner.request_segments();
        Ok(Some(leased))
    }

    /// Waits up to `timeout` for a change after number `seen`. Returns the number of the latest change.
    pub fn wait_change(&self, seen: u64, timeout: Duration) -> u64 {
        let inner = &*self.inner;
        let is_old = |state: &mut CarouselState| state.changes == seen;
        let mut state = inner.state.lock();
        inner.changed.wait_while_for(&mut state, is_old, timeout);
        state.changes
    }

    /// Wakes all threads that wait for a change.
    pub fn wake(&self) {
        self.inner.notify();
    }

    /// Records the waiting time of a job.
    pub fn add_stall(&self, cause: Phase, waited: Duration) {
        self.inner.stalls.add(cause, waited);
    }

    /// Upper limit of bytes for segments.
    pub fn memory_bytes(&self) -> u64 {
        self.inner.limit as u64 * self.inner.plan.layout().slab().total_bytes() as u64
    }

    /// All counters.
    pub fn snapshot(&self) -> CarouselSnapshot {
        let inner = &*self.inner;
        let RunContext { metrics, budget, .. } = &inner.context;
        let mut engine = Snapshot::new(metrics, inner.run.workers(), inner.run.queue(), budget.snapshot());
        // The collecting thread waits whenever no job needs a segment. What counts is how long jobs wait.
        engine.stall_seconds = inner.stalls.seconds();
        engine.reservoir = inner.supply.reservoir();
        let state = inner.state.lock();
        let (live_segments, jobs) = (state.scheduler.live(), state.scheduler.jobs().count());
        let leased_segments = state.scheduler.leased();
        drop(state);
        let segment_bytes = inner.plan.layout().slab().total_bytes() as u64;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (produced_samples, leased_samples) = (count(&inner.produced_samples), count(&inner.leased_samples));
        CarouselSnapshot {
            jobs,
            live_segments,
            leased_segments,
            segments: inner.segments.count(),
            segment_bytes,
            live_bytes: live_segments as u64 * segment_bytes,
            produced_samples,
            leased_samples,
            leased_per_produced: leased_samples as f64 / produced_samples.max(1) as f64,
            engine,
        }
    }
}

/// The counters of a carousel.
#[derive(Clone, Debug, serde::Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct CarouselSnapshot {
    pub jobs: usize,
    /// Segments in memory, including those in production.
    pub live_segments: usize,
    pub leased_segments: usize,
    /// Number of segments that the data is divided into.
    pub segments: u64,
    pub segment_bytes: u64,
    pub live_bytes: u64,
    pub produced_samples: u64,
    /// Total samples leased to jobs.
    pub leased_samples: u64,
    /// How often a produced sample is leased on average.
    pub leased_per_produced: f64,
    /// The counters of the producing engine. Its `stall_seconds` are the sum over jobs.
    pub engine: Snapshot,
}

impl Drop for Carousel {
    fn drop(&mut self) {
        self.inner.is_closed.store(true, Ordering::Relaxed);
        // Ends the wait of the collecting thread, so that the join below does not block.
        self.inner.run.close();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of a carousel panicked");
        }
        self.inner.keep_costs();
    }
}

impl CarouselState {
    /// The earliest time at which a job will wait for a segment in production. `None` if no job is assigned one.
    fn due(&self, now: Instant) -> Option<Instant> {
        let due = |(job, before)| self.paces.get(&job).map_or(now, |pace| pace.due(before, now));
        self.requested.iter().flat_map(|(number, _)| self.scheduler.assigned_jobs(*number).map(due)).min()
    }
}

impl Inner {
    /// Changes the weights of jobs, and with them that of the production.
    fn weigh(&self, change: impl FnOnce(&mut BTreeMap<JobId, CoreWeight>)) {
        let mut state = self.state.lock();
        change(&mut state.weights);
        self.run.set_weight(state.weights.values().max().copied().unwrap_or_default());
    }

    /// Changes the scheduler, then requests what follows from the change.
    fn change<R>(&self, change: impl FnOnce(&mut SegmentScheduler<SegmentContent>) -> R) -> R {
        let result = change(&mut self.state.lock().scheduler);
        self.request_segments();
        result
    }

    /// Assigns segments to jobs and requests missing ones from the engine.
    fn request_segments(&self) {
        // Lock order: `requesting` before `state`.
        let requesting = self.requesting.lock();
        let mut state = self.state.lock();
        let ordered = state.scheduler.assign_ahead();
        let now = Instant::now();
        state.requested.extend(ordered.iter().map(|ordered| (ordered.number, now)));
        if let Some(due) = state.due(now) {
            self.run.set_due(due);
        }
        drop(state);
        for ordered in ordered {
            let positions = self.segments.positions(ordered.segment_round.segment);
            let positions = positions.start + ordered.skipped..positions.end;
            let range = PositionRange { epoch: Epoch(ordered.segment_round.round), positions };
            self.run.request(BatchRequest::Positions(range));
        }
        drop(requesting);
        self.notify();
    }

    fn notify(&self) {
        // Counted under the lock. So a thread that saw the old number either waits already and is woken, or sees the new number.
        self.state.lock().changes += 1;
        self.changed.notify_all();
    }

    /// Collects finished segments until the end.
    fn produce(&self) {
        while !self.is_closed.load(Ordering::Relaxed) {
            let taken =
                self.run.wait_within(POLL).and_then(|is_ready| if is_ready { self.run.take() } else { Ok(None) });
            match taken {
                Ok(Some((delivery, slab))) => self.publish(delivery, slab),
                Ok(None) => {}
                Err(error) => {
                    let error = match error {
                        Error::OutOfMemory { bytes } => Error::NoSegment { bytes },
                        other => other,
                    };
                    self.state.lock().failed = Some(Arc::new(error));
                    self.notify();
                    return;
                }
            }
        }
    }

    fn publish(&self, delivery: Delivery, slab: Arc<Slab>) {
        let Delivery { batch, substitutes, before, phase, .. } = delivery;
        // The first slot holds the sample at position `offset`: skipped samples have no slot.
        let slot_of = |position: u64| (position - before.offset) as usize;
        let bad = substitutes
            .into_iter()
            .map(|substitute| BadSlot { slot: slot_of(substitute.failure.position.0), substitute });
        let bad = bad.collect();
        let samples = batch.len as u64;
        drop(batch);
        let produced = self.produced_samples.fetch_add(samples, Ordering::Relaxed);
        let mut state = self.state.lock();
        // An on-demand run delivers in the order of the requests.
        if let Some((number, requested)) = state.requested.pop_front() {
            state.scheduler.publish(number, SegmentContent { slab, bad, provenance: Provenance { requested, phase } });
        }
        drop(state);
        // Wakes the jobs that wait for this segment. From now on it may also be dropped to make room.
        self.request_segments();
        let all = self.segments.samples();
        // Once per pass over the data.
        if produced / all != (produced + samples) / all {
            self.keep_costs();
        }
    }

    fn keep_costs(&self) {
        keep_costs(&self.plan, &self.context.costs, &self.machine);
    }
}
