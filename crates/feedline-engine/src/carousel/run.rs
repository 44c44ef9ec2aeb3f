//! The ring with an engine that produces what it asks for.
//!
//! In: a plan that many jobs have in common; jobs that board, lease and leave, from threads of their own. Out: leases of
//! segments. One thread takes what the engine has finished. Dropping it ends everything within a second (law 7).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use feedline_data::memory::Budget;
use feedline_data::plan::Plan;
use feedline_memory::{Pool, Slab};
use feedline_order::{Epoch, Segments};
use parking_lot::{Condvar, Mutex};

use super::pace::JobPace;
use super::ring::Ring;
use super::{BadSlot, JobId, Leased, Provenance, SegmentContent};
use crate::error::Error;
use crate::machine::Machine;
use crate::metrics::{Phase, Snapshot, StallMeter};
use crate::run::{Delivery, PositionRange, Run, RunContext, context_for, keep_costs};
use crate::state::JobProgress;
use crate::supply::{Supply, supply_for};

/// How long the thread that takes what is finished waits before it looks whether it should end.
const POLL: Duration = Duration::from_millis(100);
/// How long a job waits for room before it is turned away.
const BOARDING: Duration = Duration::from_secs(3);
/// Segments below which nothing can be produced while something is read.
const FEWEST: u64 = 2;

/// Where segments lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// On the heap, for jobs of this process.
    Heap,
    /// Where other processes can see them.
    Shared,
}

/// One production for many jobs.
#[derive(Debug)]
pub struct Carousel {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    plan: Arc<Plan>,
    segments: Segments,
    /// Segments that may be live.
    limit: usize,
    run: Run,
    supply: Arc<dyn Supply>,
    context: RunContext,
    machine: Machine,
    state: Mutex<CarouselState>,
    changed: Condvar,
    /// Held from the ring's decision until the engine is asked, so that segments are finished in the order that they are noted.
    asking: Mutex<()>,
    is_closed: AtomicBool,
    produced_samples: AtomicU64,
    leased_samples: AtomicU64,
    stalls: StallMeter,
}

#[derive(Debug)]
struct CarouselState {
    ring: Ring<SegmentContent>,
    /// What the engine was asked for, in order, and when.
    asked: VecDeque<(u64, Instant)>,
    /// How fast jobs read.
    paces: BTreeMap<JobId, JobPace>,
    failed: Option<Arc<Error>>,
    /// Counts changes, so that nobody who looks in between misses one.
    changes: u64,
}

impl Carousel {
    /// Starts to produce for the jobs that will board, all with the values and fields of `plan`; segments take at most
    /// `memory_bytes`.
    pub fn start(plan: &Plan, machine: &Machine, memory: Memory, memory_bytes: u64) -> Result<Self, Error> {
        let segments = plan.segments().clone();
        let plan = Arc::new(plan.production().map_err(|error| Error::Unproducible(Box::new(error)))?);
        let layout = plan.layout().slab().clone();
        let slab_bytes = layout.total_bytes() as u64;
        if slab_bytes.saturating_mul(FEWEST) > memory_bytes {
            return Err(Error::SharedMemory { needs: slab_bytes * FEWEST, has: memory_bytes });
        }
        let limit = usize::try_from(memory_bytes / slab_bytes.max(1)).unwrap_or(usize::MAX);
        let limit = limit.min(segments.count() as usize * 2 + 1);
        let pool = match memory {
            Memory::Heap => Pool::new(layout, limit),
            Memory::Shared => Pool::shared(layout, limit),
        };
        let supply = supply_for(&plan, machine);
        let mut context = context_for(&plan, &supply, machine);
        // Two segments are under way at once, beside what samples in preparation take.
        let budget = context.budget.limit().saturating_add(FEWEST * slab_bytes).saturating_mul(4) / 3;
        context.budget = Budget::asked(budget, machine.memory_bytes);
        let run = Run::on_demand(Arc::clone(&plan), Arc::clone(&supply), pool, context.clone())?;
        let state = CarouselState {
            ring: Ring::new(segments.clone(), limit),
            asked: VecDeque::new(),
            paces: BTreeMap::new(),
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
            asking: Mutex::default(),
            is_closed: AtomicBool::new(false),
            produced_samples: AtomicU64::new(0),
            leased_samples: AtomicU64::new(0),
            stalls: StallMeter::default(),
        });
        let producing = Arc::clone(&inner);
        let thread = thread::Builder::new().name("feedline-carousel".to_owned()).spawn(move || producing.produce());
        Ok(Self { inner, thread: Some(thread.map_err(Error::Thread)?) })
    }

    /// The plan that produces; its batches are segments.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.inner.plan
    }

    /// How the data is divided.
    pub fn segments(&self) -> &Segments {
        &self.inner.segments
    }

    /// Lets a job on; an error if others hold so much for some seconds that there is no room for what it would read.
    pub fn board(&self, job_progress: &JobProgress) -> Result<JobId, Error> {
        let (deadline, mut seen) = (Instant::now() + BOARDING, 0);
        let boarded = loop {
            let has_room = self.inner.state.lock().ring.has_room_for_job();
            let board = |ring: &mut Ring<SegmentContent>| ring.has_room_for_job().then(|| ring.board(job_progress));
            let boarded = if has_room { self.inner.change(board) } else { None };
            let left = deadline.saturating_duration_since(Instant::now());
            if boarded.is_some() || left.is_zero() {
                break boarded;
            }
            // What others give back may be on its way.
            seen = self.wait_change(seen, left.min(POLL));
        };
        let segment_bytes = self.inner.plan.layout().slab().total_bytes() as u64;
        boarded.ok_or_else(|| Error::Crowded { segments: self.inner.limit, bytes: segment_bytes })
    }

    /// Lets a job go on from somewhere else.
    pub fn change(&self, job: JobId, job_progress: &JobProgress) {
        self.inner.change(|ring| ring.change(job, job_progress));
    }

    /// Lets a job off, with all that it has leased.
    pub fn leave(&self, job: JobId) {
        self.inner.state.lock().paces.remove(&job);
        // Who has left may have arrays over what he had: its memory is not used again.
        let held = self.inner.change(|ring| ring.leave(job));
        for content in held {
            content.slab.retire();
        }
    }

    /// A job holds nothing any more of a segment that it had leased.
    pub fn give_back(&self, job: JobId, number: u64) {
        self.inner.change(|ring| ring.give_back(job, number));
    }

    /// Waits up to `timeout` for the next segment of a job.
    pub fn lease_within(&self, job: JobId, timeout: Duration) -> Result<Option<Leased<SegmentContent>>, Arc<Error>> {
        let inner = &*self.inner;
        let deadline = Instant::now() + timeout;
        let mut state = inner.state.lock();
        let leased = loop {
            if let Some(failed) = &state.failed {
                return Err(Arc::clone(failed));
            }
            let leased = state.ring.lease(job);
            let pace = state.paces.entry(job).or_default();
            if let Some(leased) = leased {
                pace.lease(Instant::now());
                break leased;
            }
            if pace.wait(Instant::now()) {
                // Others may have to give way to one that has nothing to read.
                drop(state);
                inner.ask();
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
        inner.ask();
        Ok(Some(leased))
    }

    /// Waits up to `timeout` for a change since the one with this number; gives the number of the last.
    pub fn wait_change(&self, seen: u64, timeout: Duration) -> u64 {
        let inner = &*self.inner;
        let is_old = |state: &mut CarouselState| state.changes == seen;
        let mut state = inner.state.lock();
        inner.changed.wait_while_for(&mut state, is_old, timeout);
        state.changes
    }

    /// Wakes whoever waits for a change.
    pub fn wake(&self) {
        self.inner.tell();
    }

    /// Books that a job waited.
    pub fn book_stall(&self, cause: Phase, waited: Duration) {
        self.inner.stalls.add(cause, waited);
    }

    /// Bytes that its segments may take.
    pub fn memory_bytes(&self) -> u64 {
        self.inner.limit as u64 * self.inner.plan.layout().slab().total_bytes() as u64
    }

    /// What was done so far, in numbers.
    pub fn snapshot(&self) -> CarouselSnapshot {
        let inner = &*self.inner;
        let RunContext { metrics, budget, .. } = &inner.context;
        let mut engine = Snapshot::new(metrics, inner.run.workers(), inner.run.queue(), budget.snapshot());
        // Who takes segments from the engine waits whenever nobody needs one; what counts is how long jobs do.
        engine.stall_seconds = inner.stalls.seconds();
        engine.reservoir = inner.supply.reservoir();
        let state = inner.state.lock();
        let (live_segments, jobs) = (state.ring.live(), state.ring.jobs().count());
        let leased_segments = state.ring.leased();
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

/// A carousel in numbers.
#[derive(Clone, Debug, serde::Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct CarouselSnapshot {
    pub jobs: usize,
    pub live_segments: usize,
    /// Live segments that jobs hold.
    pub leased_segments: usize,
    pub segments: u64,
    pub segment_bytes: u64,
    /// Memory of the live segments.
    pub live_bytes: u64,
    pub produced_samples: u64,
    /// Samples that jobs were given.
    pub leased_samples: u64,
    /// How often each sample is read that was produced.
    pub leased_per_produced: f64,
    /// The engine that produces; its `stall_seconds` are those of the jobs together.
    pub engine: Snapshot,
}

impl Drop for Carousel {
    fn drop(&mut self) {
        self.inner.is_closed.store(true, Ordering::Relaxed);
        self.inner.run.close();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of a carousel panicked");
        }
        self.inner.keep_costs();
    }
}

impl CarouselState {
    /// When the first job will wait for something that is being produced.
    fn due(&self, now: Instant) -> Option<Instant> {
        let due = |(job, before)| self.paces.get(&job).map_or(now, |pace| pace.due(before, now));
        self.asked.iter().flat_map(|(number, _)| self.ring.wanted_by(*number).map(due)).min()
    }
}

impl Inner {
    /// Changes the ring, and does what follows from it.
    fn change<R>(&self, change: impl FnOnce(&mut Ring<SegmentContent>) -> R) -> R {
        let result = change(&mut self.state.lock().ring);
        self.ask();
        result
    }

    /// Gives jobs segments, and asks the engine for those that have to be produced.
    fn ask(&self) {
        let asking = self.asking.lock();
        let mut state = self.state.lock();
        let ordered = state.ring.give();
        let now = Instant::now();
        state.asked.extend(ordered.iter().map(|ordered| (ordered.number, now)));
        if let Some(due) = state.due(now) {
            self.run.set_due(due);
        }
        drop(state);
        for ordered in ordered {
            let positions = self.segments.positions(ordered.segment_round.segment);
            let positions = positions.start + ordered.skipped..positions.end;
            self.run.ask(PositionRange { epoch: Epoch(ordered.segment_round.round), positions });
        }
        drop(asking);
        self.tell();
    }

    fn tell(&self) {
        self.state.lock().changes += 1;
        self.changed.notify_all();
    }

    /// Takes what the engine has finished until the end.
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
                    self.tell();
                    return;
                }
            }
        }
    }

    fn publish(&self, delivery: Delivery, slab: Arc<Slab>) {
        let Delivery { batch, substitutes, before, phase, .. } = delivery;
        let slot_of = |position: u64| (position - before.offset) as usize;
        let bad = substitutes
            .into_iter()
            .map(|substitute| BadSlot { slot: slot_of(substitute.failure.position.0), substitute });
        let bad = bad.collect();
        let samples = batch.len as u64;
        drop(batch);
        let produced = self.produced_samples.fetch_add(samples, Ordering::Relaxed);
        let mut state = self.state.lock();
        if let Some((number, asked)) = state.asked.pop_front() {
            state.ring.publish(number, SegmentContent { slab, bad, provenance: Provenance { asked, phase } });
        }
        drop(state);
        // Publishing makes room for nobody, but what was unread may give way now.
        self.ask();
        let all = self.segments.samples();
        if produced / all != (produced + samples) / all {
            self.keep_costs();
        }
    }

    fn keep_costs(&self) {
        keep_costs(&self.plan, &self.context.costs, &self.machine);
    }
}
