//! The thread that reads along the walk.
//!
//! In: which steps may be read. Out: their bytes, in long reads one after the other; from a peer a few are under way at once. It
//! reads on as long as there is room, so that the next samples are here before their tasks are.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::super::reader::Part;
use super::super::{LocalSupply, Reading, Ready, Wanted};
use super::haul::{Haul, hauls};
use super::hoard::{Asked, Complete, Hoard, Ticket};
use super::way::Way;
use crate::engine::Task;
use crate::metrics::{ReservoirSnapshot, TrafficMeter};
use crate::order::{Epoch, EpochSequence, Occurrence, ReservoirEpoch};
use crate::source::OpenPart;
use crate::store::{Answer, Fetch, Object};

/// Fetches from a peer that are under way at once.
const MOST_REQUESTS: usize = 8;

/// What the thread and those who ask share.
#[derive(Debug)]
pub(super) struct Walk {
    local: Arc<LocalSupply>,
    rank: u32,
    traffic: Arc<TrafficMeter>,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Debug)]
struct Progress {
    hoard: Hoard,
    /// Fetches under way; one that has just begun is not here yet.
    fetches: HashMap<u64, Option<Fetch>>,
    answers: VecDeque<(u64, Answer)>,
    numbers: u64,
    is_closed: bool,
    has_ended: bool,
}

/// What the thread does next.
enum Next {
    /// Read these samples, unless the generation has ended.
    Leg(u64, Vec<Wanted>),
    /// Begin a fetch.
    Fetch,
    /// Take what came of one.
    Answer(u64, Answer),
}

/// Goes with a task that is ready, and ends what is held for it.
struct Holding {
    walk: Arc<Walk>,
    ticket: Ticket,
}

impl Drop for Holding {
    fn drop(&mut self) {
        let freed = self.walk.lock().hoard.end(&self.ticket);
        self.walk.changed.notify_all();
        drop(freed);
    }
}

impl Walk {
    pub fn new(local: Arc<LocalSupply>, hoard: Hoard, traffic: Arc<TrafficMeter>) -> Self {
        let rank = local.plan().config().rank().rank;
        let progress = Progress {
            hoard,
            fetches: HashMap::new(),
            answers: VecDeque::new(),
            numbers: 0,
            is_closed: false,
            has_ended: false,
        };
        Self { local, rank, traffic, progress: Mutex::new(progress), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn walk_of(&self, epoch: Epoch) -> Arc<ReservoirEpoch> {
        match self.local.plan().sequence().epoch(epoch) {
            EpochSequence::Reservoir(walk) => walk,
            _ => unreachable!("this supply is for plans with a reservoir: see Loader::new"),
        }
    }

    /// Takes tasks; hands over those whose samples are here.
    pub fn ask(self: &Arc<Self>, tasks: Vec<Task>, ready: &Arc<dyn Ready>) {
        if self.lock().has_ended {
            return ready.ready(tasks);
        }
        let tasks: Vec<_> = tasks.into_iter().map(|task| (self.asked(&task), task)).collect();
        self.open_ways(&tasks);
        let mut complete = Complete::new();
        let mut progress = self.lock();
        for (asked, task) in tasks {
            progress.hoard.ask(task, asked, ready, &mut complete);
        }
        drop(progress);
        self.changed.notify_all();
        self.hand_over(complete);
    }

    /// What a task asks for.
    fn asked(&self, task: &Task) -> Vec<Asked> {
        let plan = self.local.plan();
        let walk = self.walk_of(task.course().epoch);
        let step = |position| {
            let (rank, turn) = walk.turn_at(position);
            (rank.rank == self.rank).then(|| walk.step_at(rank.rank, turn))
        };
        let steps = task.positions(plan).map(step);
        task.wanted(plan).into_iter().zip(steps).map(|(wanted, step)| Asked { wanted, step }).collect()
    }

    /// Begins the walks of epochs that are asked for: the first where the stream stands, those that follow at their beginning.
    fn open_ways(&self, tasks: &[(Vec<Asked>, Task)]) {
        let epochs: BTreeSet<Epoch> = tasks.iter().map(|(_, task)| task.course().epoch).collect();
        let mut last = self.lock().hoard.last_epoch();
        let plan = self.local.plan();
        for epoch in epochs {
            if last.is_some_and(|last| epoch != Epoch(last.0 + 1)) {
                continue;
            }
            let walk = self.walk_of(epoch);
            let of_epoch = || tasks.iter().map(|(_, task)| task).filter(|task| task.course().epoch == epoch);
            let own = |position| Some(walk.turn_at(position)).filter(|(rank, _)| rank.rank == self.rank);
            let turns = || of_epoch().flat_map(|task| task.positions(plan)).filter_map(own).map(|(_, turn)| turn);
            let (turn, share) = match last {
                Some(_) => (0, plan.share(0)),
                None => (
                    turns().min().unwrap_or(0),
                    of_epoch().next().map_or_else(|| plan.share(0), |task| task.course().share),
                ),
            };
            self.open_way(epoch, Way::from_turn(walk, self.rank, turn, &share));
            last = Some(epoch);
        }
    }

    fn open_way(&self, epoch: Epoch, way: Way) {
        self.lock().hoard.ways.entry(epoch).or_insert(way);
    }

    fn hand_over(self: &Arc<Self>, complete: Complete) {
        for (ready, mut task, ticket) in complete {
            task.hold(Holding { walk: Arc::clone(self), ticket });
            ready.ready(vec![task]);
        }
    }

    /// Drops all that is read and planned; tasks that are still expected are asked for anew.
    pub fn forget(self: &Arc<Self>) {
        let mut progress = self.lock();
        let (dropped, waiting) = progress.hoard.clear();
        let under_way = (std::mem::take(&mut progress.fetches), std::mem::take(&mut progress.answers));
        drop(progress);
        drop((dropped, under_way));
        let expected = waiting.into_iter().filter(|(task, ready)| ready.expects(task));
        let mut of_runs: Vec<(Arc<dyn Ready>, Vec<Task>)> = Vec::new();
        for (task, ready) in expected {
            match of_runs.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &ready)) {
                Some((_, tasks)) => tasks.push(task),
                None => of_runs.push((ready, vec![task])),
            }
        }
        of_runs.into_iter().for_each(|(ready, tasks)| self.ask(tasks, &ready));
    }

    pub fn parts_of(&self, wanted: Wanted) -> Arc<[Part]> {
        self.lock().hoard.parts_of(wanted)
    }

    pub fn snapshot(&self) -> ReservoirSnapshot {
        self.lock().hoard.snapshot()
    }

    /// Says that there is no thread: all is loaded sample by sample.
    pub fn give_up(&self) {
        self.lock().has_ended = true;
    }

    /// Ends the thread, some time.
    pub fn ask_to_end(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Ends the thread, waiting at most `limit`; says whether it has ended.
    pub fn close(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut progress = self.lock();
        progress.is_closed = true;
        self.changed.notify_all();
        while !progress.has_ended {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            progress = self.changed.wait_timeout(progress, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// The life of the thread.
    pub fn run(self: &Arc<Self>) {
        if catch_unwind(AssertUnwindSafe(|| self.read_on())).is_err() {
            tracing::error!("the thread that reads in sequence panicked; samples are read one by one");
        }
        let mut progress = self.lock();
        progress.has_ended = true;
        let (dropped, waiting) = progress.hoard.clear();
        let fetches = std::mem::take(&mut progress.fetches);
        drop(progress);
        self.changed.notify_all();
        drop((dropped, fetches));
        waiting.into_iter().for_each(|(task, ready)| ready.ready(vec![task]));
    }

    fn read_on(self: &Arc<Self>) {
        let (mut memory, mut last) = (Vec::new(), None);
        let (mut queued, mut fetched) = (VecDeque::new(), HashMap::new());
        while let Some(next) = self.next(queued.len()) {
            match next {
                Next::Leg(generation, leg) => {
                    for haul in self.plan(generation, leg) {
                        if haul.object.remote().is_some() {
                            queued.push_back((generation, haul));
                        } else {
                            self.read(haul, generation, &mut memory, &mut last);
                        }
                    }
                }
                Next::Fetch => {
                    if let Some((generation, haul)) = queued.pop_front()
                        && let Some(number) = self.fetch(&haul, generation)
                    {
                        fetched.insert(number, (generation, haul));
                    }
                }
                Next::Answer(number, answer) => {
                    if let Some((generation, haul)) = fetched.remove(&number) {
                        self.traffic.add(haul.epoch, answer.traffic);
                        self.put(&haul, answer.bytes.as_deref().unwrap_or_default(), generation);
                    }
                }
            }
            if fetched.len() > MOST_REQUESTS {
                // Those that were forgotten have no answer.
                let progress = self.lock();
                fetched.retain(|number, _| progress.fetches.contains_key(number));
            }
        }
    }

    /// Waits until there is something to do; nothing once closed.
    fn next(&self, queued: usize) -> Option<Next> {
        let source = self.local.plan().source();
        let wanted = |epoch, way: &Way, step| {
            let id = source.id_at(way.walk.ordinal_of_step(self.rank, step));
            Wanted { id, epoch, occurrence: Occurrence(0) }
        };
        let mut progress = self.lock();
        while !progress.is_closed {
            if let Some((number, answer)) = progress.answers.pop_front() {
                let fetch = progress.fetches.remove(&number);
                drop(progress);
                drop(fetch);
                return Some(Next::Answer(number, answer));
            }
            if queued > 0 && progress.fetches.len() < MOST_REQUESTS {
                return Some(Next::Fetch);
            }
            if let Some(epoch) = progress.hoard.next_epoch() {
                drop(progress);
                let way = Way::from_turn(self.walk_of(epoch), self.rank, 0, &self.local.plan().share(0));
                self.open_way(epoch, way);
                progress = self.lock();
                continue;
            }
            if queued == 0 {
                let leg = progress.hoard.next_leg(wanted);
                if !leg.is_empty() {
                    return Some(Next::Leg(progress.hoard.generation, leg));
                }
            }
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// The hauls of a leg.
    fn plan(self: &Arc<Self>, generation: u64, leg: Vec<Wanted>) -> Vec<Haul> {
        let samples: Vec<(Wanted, Vec<OpenPart>)> =
            leg.into_iter().map(|wanted| (wanted, self.parts(wanted))).collect();
        let mut complete = Complete::new();
        let mut progress = self.lock();
        if progress.hoard.generation != generation {
            return Vec::new();
        }
        for (wanted, parts) in &samples {
            progress.hoard.expect(*wanted, parts.len(), &mut complete);
        }
        drop(progress);
        self.hand_over(complete);
        hauls(&samples)
    }

    /// The stored bytes of a sample. Where that cannot be said, nothing: to load it will say why.
    fn parts(&self, wanted: Wanted) -> Vec<OpenPart> {
        let parts = self.local.needs(wanted, Reading::Trimmed).unwrap_or_default();
        let is_read = |(object, range): &OpenPart| !range.is_empty() && !object.is_in_memory();
        parts.into_iter().filter(is_read).collect()
    }

    fn read(
        self: &Arc<Self>,
        mut haul: Haul,
        generation: u64,
        memory: &mut Vec<u8>,
        last: &mut Option<(Arc<dyn Object>, u64)>,
    ) {
        let progress = self.lock();
        if progress.is_closed || progress.hoard.generation != generation {
            return;
        }
        drop(progress);
        haul.join(last.as_ref());
        let len = haul.len();
        let has_room = len <= memory.len() || memory.try_reserve_exact(len - memory.len()).is_ok();
        if has_room && len > memory.len() {
            memory.resize(len, 0);
        }
        let bytes = if has_room { &mut memory[..len] } else { &mut [] };
        let is_read = has_room && haul.object.read_at(haul.range.start, bytes).is_ok();
        *last = Some((Arc::clone(&haul.object), haul.range.end));
        // What could not be read in one go is tried sample by sample when it is loaded, and fails there by name.
        let bytes = if is_read { &*bytes } else { &[] };
        self.put(&haul, bytes, generation);
    }

    /// Begins to fetch a haul, unless nobody wants it any more; gives the number of the fetch.
    fn fetch(self: &Arc<Self>, haul: &Haul, generation: u64) -> Option<u64> {
        let mut progress = self.lock();
        if progress.hoard.generation != generation {
            return None;
        }
        progress.numbers += 1;
        let number = progress.numbers;
        progress.fetches.insert(number, None);
        drop(progress);
        let walk = Arc::downgrade(self);
        let done = Box::new(move |answer| {
            let Some(walk) = walk.upgrade() else { return };
            let mut progress = walk.lock();
            if progress.fetches.contains_key(&number) {
                progress.answers.push_back((number, answer));
            }
            drop(progress);
            walk.changed.notify_all();
        });
        let remote = haul.object.remote().expect("only what is with a peer is fetched");
        let fetch = remote.fetch(haul.range.clone(), done);
        let mut progress = self.lock();
        match progress.fetches.get_mut(&number) {
            Some(place) => *place = Some(fetch),
            None => {
                drop(progress);
                drop(fetch);
            }
        }
        Some(number)
    }

    fn put(self: &Arc<Self>, haul: &Haul, bytes: &[u8], generation: u64) {
        let parts = haul.cut(bytes);
        let mut complete = Complete::new();
        let mut progress = self.lock();
        if progress.hoard.generation == generation {
            progress.hoard.reads += 1;
            progress.hoard.read_bytes += bytes.len() as u64;
            for (wanted, part) in parts {
                progress.hoard.put(wanted, part, &mut complete);
            }
        }
        drop(progress);
        self.changed.notify_all();
        self.hand_over(complete);
    }
}
