//! Local files that may not be in the page cache.
//!
//! Preparer threads read local files themselves, which is cheapest while the page cache has them. As soon as reads wait for a disk,
//! threads of this supply ask the operating system for the bytes of the samples to come, in the order of need. The preparers then
//! find them in the page cache. While reads are fast, these threads sleep.
//!
//! Always true: the bytes requested ahead of the loaded samples are limited, apart from one task for each thread (law 5). An error
//! of a read is the preparer's to report: nothing here fails.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use feedline_data::batch::{BatchLayout, Sample};
use feedline_data::cut::Cut;
use feedline_data::memory::{Cancel, Workspace};
use feedline_data::op::WorkHint;
use feedline_data::plan::Plan;
use feedline_data::source::Origin;
use feedline_memory::{Condvar, Mutex, SlotWriter};
use feedline_order::{Ordinal, Place, SampleRequest};

use super::{Keeping, Loading, LocalSupply, Made, MakeError, Making, Ready, Supply, SupplyError, Task};
use crate::metrics::{Metrics, ReservoirSnapshot, TrafficMeter};
use crate::offload::OffloadReport;
use crate::threads::Threads;

/// Opening a file whose directory entry is cold waits for the disk, so several threads open files at once.
const THREADS: usize = 4;
/// Upper limit of tasks to remember. The window of a run has fewer, unless its batches are huge.
const MAX_TASKS: usize = 4096;
/// What a slow read adds to the measure of coldness, and its limits. A fast one subtracts 1.
const SLOW: u64 = 8;
const COLD_FROM: u64 = 2 * SLOW;
const MAX_COLD: u64 = 8 * SLOW;
/// Interval at which threads look whether enough samples were loaded to go on.
const ROOM_CHECK: Duration = Duration::from_millis(2);
/// How long closing waits for a thread that opens a file.
const CLOSE_TIME: Duration = Duration::from_millis(800);

/// A supply of local files that reads ahead into the page cache.
#[derive(Debug)]
pub(super) struct ColdFiles {
    local: Arc<LocalSupply>,
    shared: Arc<Shared>,
    threads: Threads,
}

#[derive(Debug)]
struct Shared {
    plan: Arc<Plan>,
    /// Upper limit of bytes that were requested and are not loaded yet.
    max_bytes: u64,
    /// Number of samples that were loaded since the last jump. Samples start in the order of their announcement, nearly.
    loaded: AtomicU64,
    /// How cold the files are: 0 if all reads are fast.
    coldness: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
    /// Reads are not counted here, but where samples are loaded.
    uncounted: Metrics,
}

#[derive(Debug, Default)]
struct State {
    /// Announced tasks, each with the numbers of its samples.
    upcoming: VecDeque<(Range<u64>, Task)>,
    /// The number of the next announced sample.
    next: u64,
    /// The requested bytes, by the number of the sample.
    asked: VecDeque<(u64, u64)>,
    asked_bytes: u64,
    has_threads: bool,
    is_closed: bool,
}

impl ColdFiles {
    /// Whether samples of a plan have stored fields that need not be in memory.
    pub(super) fn may_be(plan: &Plan) -> bool {
        let source = plan.source();
        let is_stored = |name: &str| match source.origin(source.id_at(Ordinal(0)), name) {
            Origin::Whole { store, .. } => store.is_near(),
            Origin::Part { object, .. } => object.remote().is_none() && !object.is_in_memory(),
            Origin::Made => false,
        };
        !source.is_empty() && plan.loaded().iter().any(|(name, _)| is_stored(name))
    }

    pub(super) fn new(plan: &Arc<Plan>, local: LocalSupply, max_bytes: u64) -> Self {
        let shared = Shared {
            plan: Arc::clone(plan),
            max_bytes,
            loaded: AtomicU64::new(0),
            coldness: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Condvar::default(),
            uncounted: Metrics::new(plan),
        };
        Self { local: Arc::new(local), shared: Arc::new(shared), threads: Threads::new() }
    }

    fn start_threads(&self) {
        for number in 0..THREADS {
            let (local, shared) = (Arc::clone(&self.local), Arc::clone(&self.shared));
            let started = self.threads.start(format!("feedline-cold-{number}"), move || shared.run(&local));
            if let Err(error) = started {
                tracing::warn!(%error, "cold files are read when they are needed, not ahead");
                return;
            }
        }
    }
}

impl Shared {
    fn is_cold(&self) -> bool {
        // Relaxed: a hint about when to read, and no other data depends on it.
        self.coldness.load(Ordering::Relaxed) >= COLD_FROM
    }

    /// Notes whether a read was slow. Returns whether the files have just become cold.
    fn note(&self, was_slow: bool) -> bool {
        let before = self.coldness.load(Ordering::Relaxed);
        if before == 0 && !was_slow {
            return false;
        }
        let now = if was_slow { (before + SLOW).min(MAX_COLD) } else { before.saturating_sub(1) };
        // Concurrent notes may be lost, which does not matter.
        self.coldness.store(now, Ordering::Relaxed);
        before < COLD_FROM && now >= COLD_FROM
    }

    /// Asks for the bytes of upcoming samples until the supply is closed.
    fn run(&self, local: &LocalSupply) {
        let mut workspace = Workspace::new(Cancel::default(), 0);
        while let Some((numbers, task)) = self.next() {
            for (number, request) in numbers.zip(task.requests(&self.plan)) {
                // The preparer meets the same error, and reports it with the sample.
                let parts = local.local_needs(request, &mut workspace, &self.uncounted).unwrap_or_default();
                let was_cold =
                    parts.iter().fold(false, |was_cold, (object, range)| object.will_need(range.clone()) || was_cold);
                self.note(was_cold);
                let bytes = parts.iter().map(|(_, range)| range.end.saturating_sub(range.start)).sum();
                let mut state = self.state.lock();
                state.asked.push_back((number, bytes));
                state.asked_bytes += bytes;
            }
        }
    }

    /// Waits for the next task while files are cold. Returns `None` once the supply is closed.
    fn next(&self) -> Option<(Range<u64>, Task)> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            let loaded = self.loaded.load(Ordering::Relaxed);
            state.drop_loaded(loaded);
            if !self.is_cold() || state.upcoming.is_empty() {
                self.changed.wait(&mut state);
            } else if state.asked_bytes > self.max_bytes {
                self.changed.wait_for(&mut state, ROOM_CHECK);
            } else {
                return state.upcoming.pop_front();
            }
        }
    }
}

impl State {
    /// Forgets samples that need no read any more.
    fn drop_loaded(&mut self, loaded: u64) {
        while self.upcoming.front().is_some_and(|(numbers, _)| numbers.end <= loaded) {
            self.upcoming.pop_front();
        }
        while let Some((_, bytes)) = self.asked.pop_front_if(|(number, _)| *number < loaded) {
            self.asked_bytes -= bytes;
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Supply for ColdFiles {
    fn request(&self, tasks: Vec<Task>, ready: &Arc<dyn Ready>) {
        let mut state = self.shared.state.lock();
        for task in &tasks {
            let numbers = state.next..state.next + task.slots.len() as u64;
            state.next = numbers.end;
            state.upcoming.push_back((numbers, task.unslotted()));
        }
        state.drop_loaded(self.shared.loaded.load(Ordering::Relaxed));
        let surplus = state.upcoming.len().saturating_sub(MAX_TASKS);
        state.upcoming.drain(..surplus);
        drop(state);
        if self.shared.is_cold() {
            self.shared.changed.notify_all();
        }
        self.local.request(tasks, ready);
    }

    fn request_whole(&self, tasks: Vec<Task>, ready: &Arc<dyn Ready>) {
        self.request(tasks, ready);
    }

    fn load(&self, loading: Loading<'_, '_>) -> Result<Cut, SupplyError> {
        let metrics = loading.metrics;
        let slow = metrics.read.slow();
        let loaded = self.local.load(loading);
        self.shared.loaded.fetch_add(1, Ordering::Relaxed);
        // Another thread may have had the slow read. Files are cold for all of them.
        if self.shared.note(metrics.read.slow() > slow) {
            let mut state = self.shared.state.lock();
            let must_start = !std::mem::replace(&mut state.has_threads, true);
            drop(state);
            if must_start {
                self.start_threads();
            }
            self.shared.changed.notify_all();
        }
        loaded
    }

    fn forget(&self) {
        let mut state = self.shared.state.lock();
        let dropped = std::mem::take(&mut state.upcoming);
        (state.next, state.asked_bytes) = (0, 0);
        state.asked.clear();
        self.shared.loaded.store(0, Ordering::Relaxed);
        drop(state);
        drop(dropped);
        self.local.forget();
    }

    fn samples_ahead(&self) -> usize {
        self.local.samples_ahead()
    }

    fn fills_rows(&self) -> bool {
        self.local.fills_rows()
    }

    fn fill_rows(&self, samples: &[(Place, SampleRequest)], first: usize, writer: &mut SlotWriter) {
        self.local.fill_rows(samples, first, writer);
    }

    fn makes_samples(&self) -> bool {
        self.local.makes_samples()
    }

    fn make(&self, making: Making<'_>) -> Result<Vec<Made>, MakeError> {
        self.local.make(making)
    }

    fn offload(&self) -> Option<OffloadReport> {
        self.local.offload()
    }

    fn reservoir(&self) -> Option<ReservoirSnapshot> {
        self.local.reservoir()
    }

    fn traffic(&self) -> Arc<TrafficMeter> {
        self.local.traffic()
    }

    fn layout(&self) -> Option<Arc<BatchLayout>> {
        self.local.layout()
    }

    fn keeps(&self, request: SampleRequest, metrics: &Metrics) -> Option<Keeping> {
        self.local.keeps(request, metrics)
    }

    fn keep(
        &self,
        keeping: Keeping,
        request: SampleRequest,
        sample: &Sample<'_>,
        workspace: &mut Workspace,
        metrics: &Metrics,
    ) {
        self.local.keep(keeping, request, sample, workspace, metrics);
    }

    fn task_time(&self) -> Duration {
        self.local.task_time()
    }

    fn work_hint(&self, request: SampleRequest) -> WorkHint {
        self.local.work_hint(request)
    }
}

impl Drop for ColdFiles {
    fn drop(&mut self) {
        self.shared.state.lock().is_closed = true;
        self.shared.changed.notify_all();
        let left = self.threads.join_within(CLOSE_TIME);
        if left > 0 {
            tracing::warn!(left, "closed while files were opened; their threads will end by themselves");
        }
    }
}
