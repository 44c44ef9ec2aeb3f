//! The thread that reads along the walk.
//!
//! In: which steps may be read. Out: their bytes, in long reads one after the other; from a peer a few are under way at once. It
//! reads on as long as there is room, so that the next samples are here before their tasks are.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use feedline_data::source::OpenPart;
use feedline_data::store::Answer;
use feedline_order::{Occurrence, SampleRequest};

use super::super::haul::{Desk, Haul, hauls, stored_parts};
use super::hoard::Complete;
use super::walk::Walk;
use super::way::Way;

/// Fetches from a peer that are under way at once.
const MOST_REQUESTS: usize = 8;

/// What the thread does next.
enum Next {
    /// Read these samples, unless the generation has ended.
    Leg(u64, Vec<SampleRequest>),
    /// Begin a fetch.
    Fetch,
    /// Take what came of one.
    Answer(u64, Answer),
}

impl Walk {
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
        for (task, ready) in waiting {
            ready.ready(vec![task]);
        }
    }

    fn read_on(self: &Arc<Self>) {
        let mut desk = Desk::default();
        let (mut queued, mut fetched) = (VecDeque::new(), HashMap::new());
        while let Some(next) = self.next(queued.len()) {
            match next {
                Next::Leg(generation, leg) => {
                    for haul in self.plan(generation, leg) {
                        if haul.object.remote().is_some() {
                            queued.push_back((generation, haul));
                        } else {
                            self.read(haul, generation, &mut desk);
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
            SampleRequest { id, epoch, occurrence: Occurrence(0) }
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
    fn plan(self: &Arc<Self>, generation: u64, leg: Vec<SampleRequest>) -> Vec<Haul> {
        let samples: Vec<(SampleRequest, Vec<OpenPart>)> =
            leg.into_iter().map(|wanted| (wanted, stored_parts(&self.local, wanted))).collect();
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

    fn read(self: &Arc<Self>, mut haul: Haul, generation: u64, desk: &mut Desk) {
        let is_wanted = || {
            let progress = self.lock();
            !progress.is_closed && progress.hoard.generation == generation
        };
        if let Some(bytes) = haul.read(desk, is_wanted) {
            self.put(&haul, bytes, generation);
        }
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
        let gone = match progress.fetches.get_mut(&number) {
            Some(place) => place.replace(fetch),
            None => Some(fetch),
        };
        drop(progress);
        // It is done already, or was forgotten meanwhile.
        drop(gone);
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
