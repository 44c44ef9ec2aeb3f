//! Samples of segments that are read in sequence: whole blocks, one after the other.
//!
//! In: the tasks of a segment. Out: each task to [`Ready`] once its samples have been read, in the order in which they lie, whatever
//! places they have in the segment. Stored bytes wait in memory until their sample is prepared.
//!
//! Always true: beyond a limit no more is read while tasks that are ready wait for a thread (law 5). What cannot be read in one
//! go is loaded alone, and fails by name if it has to (law 6).

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use feedline_data::cut::Cut;
use feedline_data::op::Effort;
use feedline_data::plan::Plan;
use feedline_order::{Epoch, Occurrence, SampleRequest, Segments};

use super::haul::{Desk, Haul, hauls, stored_parts};
use super::reader::Part;
use super::{Loading, LocalSupply, Ready, Supply, SupplyError};
use crate::metrics::ReservoirSnapshot;
use crate::supply::Task;

/// Stored bytes that may wait for threads.
const MOST_BYTES: u64 = 128 << 20;

/// A supply that reads the samples of a segment in sequence.
#[derive(Debug)]
pub struct SegmentSupply {
    reads: Arc<Reads>,
    /// Started with the first request.
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread that reads and those who ask share.
#[derive(Debug)]
struct Reads {
    local: Arc<LocalSupply>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    asked: VecDeque<Asked>,
    held: HashMap<SampleRequest, Arc<[Part]>>,
    /// Tasks that were handed over and are not gone.
    handed: usize,
    is_closed: bool,
    numbers: ReservoirSnapshot,
}

/// Tasks that were asked for together.
struct Asked {
    tasks: Vec<Task>,
    ready: Arc<dyn Ready>,
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked").field("tasks", &self.tasks).finish_non_exhaustive()
    }
}

/// Goes with a task that is ready, and ends what is held for it.
struct Holding {
    reads: Arc<Reads>,
    samples: Vec<SampleRequest>,
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut state = self.reads.lock();
        let freed: Vec<_> = self.samples.iter().filter_map(|wanted| state.held.remove(wanted)).collect();
        state.numbers.bytes -= freed.iter().flat_map(|parts| parts.iter()).map(bytes_of).sum::<u64>();
        state.handed -= 1;
        drop(state);
        self.reads.changed.notify_all();
    }
}

fn bytes_of(part: &Part) -> u64 {
    part.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)
}

/// A task whose samples are being read.
struct Waiting {
    task: Task,
    samples: Vec<SampleRequest>,
    missing: usize,
}

/// Tasks that were asked for together and are not complete. If the thread panics, they are handed over as they are.
struct UnderWay {
    tasks: Vec<Option<Waiting>>,
    ready: Arc<dyn Ready>,
}

impl UnderWay {
    /// Whether somebody still waits for a task.
    fn expects(&self, task: usize) -> bool {
        self.tasks[task].as_ref().is_some_and(|waiting| self.ready.expects(&waiting.task))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if thread::panicking() {
            self.ready.ready(self.tasks.drain(..).flatten().map(|waiting| waiting.task).collect());
        }
    }
}

impl SegmentSupply {
    /// Whether samples of a plan are read this way: those of segments that lie together, on a disk. From a peer many are fetched at
    /// once, in any order.
    pub fn is_for(plan: &Plan, local: &LocalSupply) -> bool {
        let source = plan.source();
        let is_on_disk = || {
            let first = SampleRequest { id: source.id_at(0), epoch: Epoch(0), occurrence: Occurrence(0) };
            stored_parts(local, first).iter().all(|(object, _)| object.remote().is_none())
        };
        plan.sequence().segments().is_some_and(Segments::are_of_blocks) && !source.is_empty() && is_on_disk()
    }

    /// Reads what `local` will need for samples of segments.
    pub fn new(local: LocalSupply) -> Self {
        let reads = Reads { local: Arc::new(local), state: Mutex::default(), changed: Condvar::new() };
        Self { reads: Arc::new(reads), thread: Mutex::default() }
    }

    /// Starts the thread; says whether there is one.
    fn start(&self) -> bool {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let reads = Arc::clone(&self.reads);
            let body = move || {
                if catch_unwind(AssertUnwindSafe(|| reads.run())).is_err() {
                    tracing::error!("the thread that reads segments panicked; samples are read one by one");
                    reads.end();
                }
            };
            match thread::Builder::new().name("feedline-segments".to_owned()).spawn(body) {
                Ok(started) => *thread = Some(started),
                Err(error) => tracing::warn!(%error, "segments are not read in sequence"),
            }
        }
        thread.is_some()
    }
}

impl Reads {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over all that waits, as it is: from now on nothing is read ahead.
    fn end(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let left = std::mem::take(&mut state.asked);
        drop(state);
        for Asked { tasks, ready } in left {
            ready.ready(tasks);
        }
    }

    fn run(self: &Arc<Self>) {
        let mut desk = Desk::default();
        let mut state = self.lock();
        while !state.is_closed {
            if let Some(asked) = state.asked.pop_front() {
                drop(state);
                self.read(asked, &mut desk);
                state = self.lock();
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Reads the samples of tasks in the order in which they lie, and hands over what is complete.
    fn read(self: &Arc<Self>, asked: Asked, desk: &mut Desk) {
        let Asked { tasks, ready } = asked;
        let (plan, source) = (self.local.plan(), self.local.plan().source());
        let mut samples: Vec<(u64, SampleRequest, usize)> = Vec::new();
        let mut waiting = UnderWay { tasks: Vec::new(), ready };
        for (number, task) in tasks.into_iter().enumerate() {
            let of_task = task.wanted(plan);
            let place = |wanted: &SampleRequest| source.ordinal_of(wanted.id).unwrap_or_default();
            samples.extend(of_task.iter().map(|wanted| (place(wanted), *wanted, number)));
            waiting.tasks.push(Some(Waiting { task, missing: of_task.len(), samples: of_task }));
        }
        samples.sort_unstable_by_key(|(place, ..)| *place);
        let task_of: HashMap<SampleRequest, usize> = samples.iter().map(|(_, wanted, task)| (*wanted, *task)).collect();
        let mut coming: HashMap<SampleRequest, (Vec<Part>, usize)> = HashMap::new();
        let mut parts = Vec::with_capacity(samples.len());
        for (_, wanted, task) in samples {
            let stored = stored_parts(&self.local, wanted);
            if stored.is_empty() {
                self.arrive(&mut waiting, task, (wanted, Vec::new()));
            } else {
                coming.insert(wanted, (Vec::new(), stored.len()));
                parts.push((wanted, stored));
            }
        }
        for mut haul in hauls(&parts) {
            let expects = |wanted: &SampleRequest| waiting.expects(task_of[wanted]);
            if !self.wait_for_room() || !haul.samples().any(expects) {
                continue;
            }
            let Some(cuts) = self.cut(&mut haul, desk) else { return };
            for (wanted, part) in cuts {
                let Some((parts, missing)) = coming.get_mut(&wanted) else { continue };
                parts.extend(part);
                *missing -= 1;
                if *missing == 0 {
                    let parts = std::mem::take(parts);
                    self.arrive(&mut waiting, task_of[&wanted], (wanted, parts));
                }
            }
        }
    }

    /// Waits while more is held than should be and threads have something to do; says whether reading goes on.
    fn wait_for_room(&self) -> bool {
        let is_full = |state: &mut State| !state.is_closed && state.numbers.bytes >= MOST_BYTES && state.handed > 0;
        let state = self.changed.wait_while(self.lock(), is_full).unwrap_or_else(PoisonError::into_inner);
        !state.is_closed
    }

    fn cut(&self, haul: &mut Haul, desk: &mut Desk) -> Option<Vec<(SampleRequest, Option<Part>)>> {
        let bytes = haul.read(desk, || !self.lock().is_closed)?;
        let cuts = haul.cut(bytes);
        let mut state = self.lock();
        state.numbers.reads += 1;
        state.numbers.read_bytes += bytes.len() as u64;
        Some(cuts)
    }

    /// Takes a sample of a task, which is handed over with the last.
    fn arrive(self: &Arc<Self>, waiting: &mut UnderWay, task: usize, (wanted, parts): (SampleRequest, Vec<Part>)) {
        let Some(one) = &mut waiting.tasks[task] else { return };
        one.missing -= 1;
        let is_complete = one.missing == 0;
        let mut state = self.lock();
        state.numbers.bytes += parts.iter().map(bytes_of).sum::<u64>();
        state.numbers.peak_bytes = state.numbers.peak_bytes.max(state.numbers.bytes);
        if let Some(replaced) = state.held.insert(wanted, parts.into()) {
            state.numbers.bytes -= replaced.iter().map(bytes_of).sum::<u64>();
        }
        state.handed += usize::from(is_complete);
        drop(state);
        if let Some(Waiting { mut task, samples, .. }) = waiting.tasks[task].take_if(|_| is_complete) {
            task.hold(Holding { reads: Arc::clone(self), samples });
            waiting.ready.ready(vec![task]);
        }
    }
}

impl Supply for SegmentSupply {
    fn request(&self, tasks: Vec<Task>, ready: &Arc<dyn Ready>) {
        let has_thread = self.start();
        let mut state = self.reads.lock();
        if !has_thread || state.is_closed {
            drop(state);
            return ready.ready(tasks);
        }
        state.asked.push_back(Asked { tasks, ready: Arc::clone(ready) });
        drop(state);
        self.reads.changed.notify_all();
    }

    fn forget(&self) {
        let mut state = self.reads.lock();
        let (kept, dropped) = std::mem::take(&mut state.asked)
            .into_iter()
            .partition(|asked: &Asked| asked.tasks.iter().any(|task| asked.ready.expects(task)));
        state.asked = kept;
        drop(state);
        let dropped: VecDeque<Asked> = dropped;
        drop(dropped);
    }

    fn effort(&self, wanted: SampleRequest) -> Effort {
        self.reads.local.effort(wanted)
    }

    fn reservoir(&self) -> Option<ReservoirSnapshot> {
        let state = self.reads.lock();
        Some(ReservoirSnapshot { samples: state.held.len() as u64, ..state.numbers })
    }

    fn load(&self, loading: Loading<'_, '_>) -> Result<Cut, SupplyError> {
        let parts = self.reads.lock().held.get(&loading.request).map_or_else(Arc::default, Arc::clone);
        self.reads.local.load_with(&parts, loading)
    }
}

impl Drop for SegmentSupply {
    fn drop(&mut self) {
        self.reads.end();
        self.reads.changed.notify_all();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // The last task that it drops may hold the last run, and so this.
        let thread = thread.filter(|thread| thread.thread().id() != thread::current().id());
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that reads segments panicked");
        }
    }
}
