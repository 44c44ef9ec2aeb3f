//! What the thread that reads and those who ask share: tasks in, tasks whose samples are here out.
//!
//! Always true: no lock is held while a task is handed over, memory is freed or an order is found.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use feedline_data::store::{Answer, Fetch};
use feedline_order::{Epoch, EpochSequence, ReservoirEpoch, SampleRequest};

use super::super::reader::Part;
use super::super::{LocalSupply, Ready};
use super::hoard::{Asked, Complete, Hoard, Ticket};
use super::way::Way;
use crate::metrics::{ReservoirSnapshot, TrafficMeter};
use crate::supply::Task;

/// What the thread and those who ask share.
#[derive(Debug)]
pub(super) struct Walk {
    pub local: Arc<LocalSupply>,
    pub rank: u32,
    pub traffic: Arc<TrafficMeter>,
    pub progress: Mutex<Progress>,
    pub changed: Condvar,
}

#[derive(Debug)]
pub(super) struct Progress {
    pub hoard: Hoard,
    /// Fetches under way; one that has just begun is not here yet.
    pub fetches: HashMap<u64, Option<Fetch>>,
    pub answers: VecDeque<(u64, Answer)>,
    pub numbers: u64,
    pub is_closed: bool,
    pub has_ended: bool,
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
        let rank = local.plan().config().rank.rank;
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

    pub fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn walk_of(&self, epoch: Epoch) -> Arc<ReservoirEpoch> {
        match self.local.plan().sequence().epoch(epoch) {
            EpochSequence::Reservoir(walk) => walk,
            _ => unreachable!("this supply is for plans with a reservoir: see Loader::new"),
        }
    }

    /// Takes tasks; hands over those whose samples are here.
    pub fn ask(self: &Arc<Self>, tasks: Vec<Task>, ready: &Arc<dyn Ready>) {
        let tasks: Vec<_> = tasks.into_iter().map(|task| (self.asked(&task), task)).collect();
        self.open_ways(&tasks);
        let mut complete = Complete::new();
        let mut progress = self.lock();
        if progress.has_ended {
            drop(progress);
            return ready.ready(tasks.into_iter().map(|(_, task)| task).collect());
        }
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

    pub fn open_way(&self, epoch: Epoch, way: Way) {
        self.lock().hoard.ways.entry(epoch).or_insert(way);
    }

    pub fn hand_over(self: &Arc<Self>, complete: Complete) {
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
        for (ready, tasks) in of_runs {
            self.ask(tasks, &ready);
        }
    }

    pub fn parts_of(&self, wanted: SampleRequest) -> Arc<[Part]> {
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
}
