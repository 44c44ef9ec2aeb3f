//! What was read and waits for its turn, who waits for what, and how far the walk may go.
//!
//! In: tasks, samples as they are read, news of tasks that are gone. Out: which steps to read next, and tasks whose samples are
//! here. Nothing here reads, waits or calls out.
//!
//! Always true: samples held and on their way are at most those in the reservoir, those that tasks ask for, and a fixed number
//! ahead; only for a task that is needed sooner than all that are ready a few more are read, so that nothing waits for ever
//! (law 5).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use feedline_order::{Epoch, SampleRequest};

use super::super::Ready;
use super::super::reader::Part;
use super::way::Way;
use crate::metrics::ReservoirSnapshot;
use crate::supply::Task;

/// A place in the stream; see [`Task::need`].
type Need = crate::slot_ref::SlotRef;
/// Epochs whose walks are remembered: a run may look over the ends of many short ones.
const KEPT_WAYS: usize = 1024;

/// How much may be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Samples in the reservoir.
    pub size: u64,
    /// Samples that are read in one go.
    pub leg: u64,
    /// Samples that may be held beyond the reservoir and what tasks ask for.
    pub ahead: u64,
}

/// A sample that a task asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub wanted: SampleRequest,
    /// Its step in this rank's walk; none if it is another rank's.
    pub step: Option<u64>,
}

/// Tasks that can be handed over.
pub(super) type Complete = Vec<(Arc<dyn Ready>, Task, Ticket)>;

/// By what a task that is handed over is known.
#[derive(Debug)]
pub(super) struct Ticket {
    number: u64,
    need: Need,
    generation: u64,
    wanted: Vec<SampleRequest>,
}

#[derive(Debug)]
pub(super) struct Hoard {
    limits: Limits,
    pub ways: BTreeMap<Epoch, Way>,
    held: HashMap<SampleRequest, Arc<[Part]>>,
    /// Samples on their way: parts that are here, and how many are missing.
    coming: HashMap<SampleRequest, (Vec<Part>, usize)>,
    waiting: BTreeMap<(Need, u64), Waiting>,
    /// Which tasks wait for a sample.
    waited_for: HashMap<SampleRequest, Vec<(Need, u64)>>,
    /// Samples of epochs that are not walked yet, which tasks have all the same: they will not be read again.
    had: HashSet<SampleRequest>,
    /// Tasks that were handed over and are not gone.
    ready: BTreeSet<(Need, u64)>,
    /// Samples that tasks ask for, and the last epoch that they did.
    asked: u64,
    last_asked: Epoch,
    numbers: u64,
    /// Counts up when all that is held is dropped.
    pub generation: u64,
    bytes: u64,
    peak_bytes: u64,
    pub reads: u64,
    pub read_bytes: u64,
}

struct Waiting {
    task: Task,
    ready: Arc<dyn Ready>,
    asked: Vec<Asked>,
    missing: usize,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("task", &self.task).field("missing", &self.missing).finish_non_exhaustive()
    }
}

impl Hoard {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ways: BTreeMap::new(),
            held: HashMap::new(),
            coming: HashMap::new(),
            waiting: BTreeMap::new(),
            waited_for: HashMap::new(),
            had: HashSet::new(),
            ready: BTreeSet::new(),
            asked: 0,
            last_asked: Epoch(0),
            numbers: 0,
            generation: 0,
            bytes: 0,
            peak_bytes: 0,
            reads: 0,
            read_bytes: 0,
        }
    }

    /// Takes a task whose epoch has a way; it is complete if nothing of it is still to come.
    pub fn ask(&mut self, task: Task, asked: Vec<Asked>, ready: &Arc<dyn Ready>, complete: &mut Complete) {
        self.numbers += 1;
        let key = (task.need(), self.numbers);
        let mut missing = 0;
        for Asked { wanted, step } in &asked {
            let way = self.ways.get(&wanted.epoch);
            if way.is_none() && step.is_some() {
                self.had.insert(*wanted);
            }
            let is_ahead = || way.zip(*step).is_some_and(|(way, step)| way.is_coming(step));
            if !self.held.contains_key(wanted) && (self.coming.contains_key(wanted) || is_ahead()) {
                self.waited_for.entry(*wanted).or_default().push(key);
                missing += 1;
            }
        }
        self.asked += asked.len() as u64;
        self.last_asked = self.last_asked.max(task.course().epoch);
        self.waiting.insert(key, Waiting { task, ready: Arc::clone(ready), asked, missing });
        if missing == 0 {
            self.complete(key, complete);
        }
    }

    fn complete(&mut self, key: (Need, u64), complete: &mut Complete) {
        let Some(Waiting { task, ready, asked, .. }) = self.waiting.remove(&key) else { return };
        self.ready.insert(key);
        let wanted = asked.into_iter().map(|asked| asked.wanted).collect();
        complete.push((ready, task, Ticket { number: key.1, need: key.0, generation: self.generation, wanted }));
    }

    /// The last epoch that is walked.
    pub fn last_epoch(&self) -> Option<Epoch> {
        self.ways.last_key_value().map(|(epoch, _)| *epoch)
    }

    /// The epoch that is walked next, where the last one that tasks ask for has been.
    pub fn next_epoch(&self) -> Option<Epoch> {
        let (last, way) = self.ways.last_key_value()?;
        (way.left() == 0 && *last <= self.last_asked).then_some(Epoch(last.0 + 1))
    }

    /// The steps to read next, if some may be read; they count as on their way.
    pub fn next_leg(&mut self, wanted: impl Fn(Epoch, &Way, u64) -> SampleRequest) -> Vec<SampleRequest> {
        let Limits { size, leg, ahead } = self.limits;
        let here = (self.held.len() + self.coming.len()) as u64;
        let room = (size + ahead + self.asked).saturating_sub(here);
        let left: u64 = self.ways.values().map(Way::left).sum();
        // What is needed sooner than all that is ready cannot wait for that to be used up.
        let is_urgent = self.waiting.first_key_value().is_some_and(|(key, waiting)| {
            let is_under_way = |asked: &Asked| self.coming.contains_key(&asked.wanted);
            !waiting.asked.iter().any(is_under_way) && self.ready.first().is_none_or(|ready| key < ready)
        });
        if left == 0 || (room < leg.min(left) && !is_urgent) {
            return Vec::new();
        }
        let mut steps = Vec::with_capacity(leg as usize);
        for (epoch, way) in &mut self.ways {
            while (steps.len() as u64) < leg
                && let Some(step) = way.next()
            {
                let wanted = wanted(*epoch, way, step);
                if !self.had.remove(&wanted) {
                    steps.push(wanted);
                }
            }
        }
        self.coming.extend(steps.iter().map(|wanted| (*wanted, (Vec::new(), usize::MAX))));
        while self.ways.len() > KEPT_WAYS {
            self.ways.pop_first();
        }
        steps
    }

    /// Says how many parts a sample on its way has; one without any is here.
    pub fn expect(&mut self, wanted: SampleRequest, parts: usize, complete: &mut Complete) {
        let Some((_, missing)) = self.coming.get_mut(&wanted) else { return };
        *missing = parts;
        if parts == 0 {
            self.arrive(wanted, complete);
        }
    }

    /// Takes a part of a sample; none if it could not be read, so that it will be tried alone.
    pub fn put(&mut self, wanted: SampleRequest, part: Option<Part>, complete: &mut Complete) {
        let Some((parts, missing)) = self.coming.get_mut(&wanted) else { return };
        self.bytes += part.as_ref().map_or(0, bytes_of);
        parts.extend(part);
        *missing -= 1;
        let has_all = *missing == 0;
        self.peak_bytes = self.peak_bytes.max(self.bytes);
        if has_all {
            self.arrive(wanted, complete);
        }
    }

    fn arrive(&mut self, wanted: SampleRequest, complete: &mut Complete) {
        let Some((parts, _)) = self.coming.remove(&wanted) else { return };
        self.held.insert(wanted, parts.into());
        for key in self.waited_for.remove(&wanted).unwrap_or_default() {
            let Some(waiting) = self.waiting.get_mut(&key) else { continue };
            waiting.missing -= 1;
            if waiting.missing == 0 {
                self.complete(key, complete);
            }
        }
    }

    /// What is held for a sample.
    pub fn parts_of(&self, wanted: SampleRequest) -> Arc<[Part]> {
        self.held.get(&wanted).map_or_else(Arc::default, Arc::clone)
    }

    /// Forgets a task that is gone, and what was held for it; gives that, to be dropped without the lock.
    pub fn end(&mut self, ticket: &Ticket) -> Vec<Arc<[Part]>> {
        self.ready.remove(&(ticket.need, ticket.number));
        if ticket.generation != self.generation {
            return Vec::new();
        }
        self.asked -= ticket.wanted.len() as u64;
        let freed: Vec<_> = ticket.wanted.iter().filter_map(|wanted| self.held.remove(wanted)).collect();
        self.bytes -= freed.iter().flat_map(|parts| parts.iter()).map(bytes_of).sum::<u64>();
        freed
    }

    /// Drops all that is held and planned; gives it, and the tasks that waited.
    pub fn clear(&mut self) -> (impl Sized + use<>, Vec<(Task, Arc<dyn Ready>)>) {
        self.generation += 1;
        (self.bytes, self.asked, self.last_asked) = (0, 0, Epoch(0));
        self.ways.clear();
        self.waited_for.clear();
        self.had.clear();
        let waiting = std::mem::take(&mut self.waiting).into_values();
        let waiting = waiting.map(|waiting| (waiting.task, waiting.ready)).collect();
        ((std::mem::take(&mut self.held), std::mem::take(&mut self.coming)), waiting)
    }

    pub fn snapshot(&self) -> ReservoirSnapshot {
        ReservoirSnapshot {
            size: self.limits.size,
            samples: self.held.len() as u64,
            bytes: self.bytes,
            peak_bytes: self.peak_bytes,
            reads: self.reads,
            read_bytes: self.read_bytes,
        }
    }
}

fn bytes_of(part: &Part) -> u64 {
    part.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)
}
