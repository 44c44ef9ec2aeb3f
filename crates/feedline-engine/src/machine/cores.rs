//! The cores that several runs of one process share.
//!
//! In: threads that want to prepare something, each with the time at which its run is due. Out: leave to do so, by least slack:
//! whose consumers will be the first to wait goes first. Where several wait already, the run that had least of the cores goes
//! first, so that each gets as much. A run whose threads mostly wait for storage takes only the part of a
//! core that they compute. It orders who begins; nobody is interrupted, and nobody waits longer than [`PATIENCE`], so a run
//! that is never the first still moves, and a thread that holds a core while it waits for memory holds up nobody for long.
//!
//! Always true: with one run nobody waits while there is a core.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use super::sync::{AtomicBool, Deadline, Mutex, Ordering, Thread, current};

/// How long a thread waits for a core at most.
const PATIENCE: Duration = Duration::from_millis(50);
/// Cores are counted in thousandths.
const CORE: u32 = 1000;
/// A thread that hardly computes still counts as this much.
const LEAST: u32 = CORE / 20;

/// Cores that runs share.
#[derive(Debug)]
pub struct Cores {
    limit: u32,
    began: Instant,
    state: Mutex<CoresState>,
}

#[derive(Debug, Default)]
struct CoresState {
    busy: u32,
    waiting: BTreeMap<Turn, Arc<Waiter>>,
    came: u64,
    /// What the last one who went had had of the cores: who comes anew, or was away, has no claim to what was before.
    level: u64,
}

/// Who goes first: runs that are overdue by what they had of the cores, others by when they are due; then who came first.
type Turn = (Urgency, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    /// With the microseconds that it had.
    Overdue(u64),
    /// With when it is due.
    Due(u64),
}

#[derive(Debug)]
struct Waiter {
    thread: Thread,
    weight: u32,
    may_go: AtomicBool,
}

/// A run's place at the cores.
#[derive(Debug)]
pub struct CoreClaim {
    cores: Arc<Cores>,
    /// When its consumer will wait if nothing is finished before, in microseconds since the cores were there.
    due: AtomicU64,
    weight: AtomicU32,
    /// Microseconds of cores that it had, counted on from those of others when it comes.
    had: AtomicU64,
}

/// Leave to prepare something, until it is dropped.
#[derive(Debug)]
pub struct Permit<'a> {
    claim: &'a CoreClaim,
    weight: u32,
    since: Instant,
}

impl Cores {
    /// So many cores.
    pub fn new(count: usize) -> Arc<Self> {
        let limit = u32::try_from(count).unwrap_or(u32::MAX).saturating_mul(CORE);
        Arc::new(Self { limit, began: Instant::now(), state: Mutex::default() })
    }

    /// A place for a run, which is due at once.
    pub fn claim(self: &Arc<Self>) -> CoreClaim {
        CoreClaim {
            cores: Arc::clone(self),
            due: AtomicU64::new(0),
            weight: AtomicU32::new(CORE),
            had: AtomicU64::new(0),
        }
    }

    fn leave(&self, weight: u32) {
        let mut state = self.state.lock();
        state.busy -= weight;
        while let Some(first) = state.waiting.first_entry() {
            let weight = first.get().weight;
            if !state_has_room(self.limit, state.busy, weight) {
                break;
            }
            let Some(((urgency, _), waiter)) = state.waiting.pop_first() else { break };
            state.busy += weight;
            if let Urgency::Overdue(had) = urgency {
                state.level = state.level.max(had);
            }
            waiter.may_go.store(true, Ordering::Release);
            waiter.thread.unpark();
        }
    }
}

fn state_has_room(limit: u32, busy: u32, weight: u32) -> bool {
    busy == 0 || busy + weight <= limit
}

impl CoreClaim {
    /// Says when the run's consumer will wait if nothing is finished before.
    pub fn set_due(&self, due: Instant) {
        let micros = due.saturating_duration_since(self.cores.began).as_micros();
        self.due.store(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Says which part of their time the run's threads compute.
    pub(crate) fn set_computing(&self, part: f64) {
        let weight = (part * f64::from(CORE)) as u32;
        self.weight.store(weight.clamp(LEAST, CORE), Ordering::Relaxed);
    }

    /// Waits for a core while others are more urgent.
    pub fn enter(&self) -> Permit<'_> {
        let (cores, weight) = (&*self.cores, self.weight.load(Ordering::Relaxed));
        let mut state = cores.state.lock();
        if state.waiting.is_empty() && state_has_room(cores.limit, state.busy, weight) {
            state.busy += weight;
            state.level = self.had_from(state.level);
            drop(state);
            return Permit { claim: self, weight, since: Instant::now() };
        }
        let waiter = Arc::new(Waiter { thread: current(), weight, may_go: AtomicBool::new(false) });
        state.came += 1;
        let place = (self.urgency(state.level), state.came);
        state.waiting.insert(place, Arc::clone(&waiter));
        drop(state);
        let deadline = Deadline::after(PATIENCE);
        while !waiter.may_go.load(Ordering::Acquire) {
            if deadline.park() {
                continue;
            }
            let mut state = cores.state.lock();
            // It may have got leave just now.
            if state.waiting.remove(&place).is_some() {
                state.busy += weight;
            }
            break;
        }
        Permit { claim: self, weight, since: Instant::now() }
    }

    /// How urgent it is now, where the last one who went had had `level` of the cores.
    fn urgency(&self, level: u64) -> Urgency {
        let (due, now) = (self.due.load(Ordering::Relaxed), self.cores.began.elapsed().as_micros());
        if u128::from(due) > now {
            return Urgency::Due(due);
        }
        Urgency::Overdue(self.had_from(level))
    }

    /// What it had of the cores, at least `level`.
    fn had_from(&self, level: u64) -> u64 {
        self.had.fetch_max(level, Ordering::Relaxed).max(level)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let had = self.since.elapsed().as_micros() * u128::from(self.weight) / u128::from(CORE);
        self.claim.had.fetch_add(u64::try_from(had).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.claim.cores.leave(self.weight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    fn waiting(cores: &Cores) -> usize {
        cores.state.lock().waiting.len()
    }

    fn busy(cores: &Cores) -> u32 {
        cores.state.lock().busy
    }

    fn standing_due(cores: &Arc<Cores>, micros: u64) -> CoreClaim {
        let claim = cores.claim();
        claim.set_due(cores.began + Duration::from_micros(micros));
        claim
    }

    /// Who goes in which order when the only core becomes free, all having asked within the time that they wait.
    fn order(dues: &[u64]) -> Option<Vec<u64>> {
        let cores = Cores::new(1);
        let first = cores.claim();
        let (went, order) = mpsc::channel();
        let held = first.enter();
        thread::scope(|scope| {
            let began = Instant::now();
            for (number, &due) in dues.iter().enumerate() {
                let (cores, went) = (&cores, went.clone());
                scope.spawn(move || {
                    let claim = standing_due(cores, due);
                    let _permit = claim.enter();
                    went.send(due).unwrap();
                });
                while waiting(cores) <= number && began.elapsed() < PATIENCE {
                    thread::yield_now();
                }
            }
            let is_in_time = began.elapsed() < PATIENCE / 2;
            drop(held);
            let order = (0..dues.len()).map(|_| order.recv().unwrap()).collect();
            is_in_time.then_some(order)
        })
    }

    #[test]
    fn whose_consumer_waits_first_goes_first() {
        // A machine that is too busy to bring all of them together in time says nothing about the order.
        let hours = [5, 3, 7, 1].map(|hours| hours * 3_600_000_000);
        let found = (0..50).find_map(|_| order(&hours));
        assert_eq!(found, Some([1, 3, 5, 7].map(|hours| hours * 3_600_000_000).to_vec()));
    }

    #[test]
    fn of_those_who_wait_already_the_one_that_had_least_goes_first_and_a_new_one_has_no_claims() {
        let cores = Cores::new(1);
        let (heavy, light, new) = (standing_due(&cores, 0), standing_due(&cores, 0), standing_due(&cores, 0));
        heavy.had.store(9000, Ordering::Relaxed);
        light.had.store(500, Ordering::Relaxed);
        assert!(light.urgency(0) < heavy.urgency(0));
        assert_eq!(new.urgency(8000), Urgency::Overdue(8000), "as if it had been there");
        assert_eq!(heavy.urgency(8000), Urgency::Overdue(9000));
        let patient = standing_due(&cores, u64::MAX / 2);
        assert!(heavy.urgency(8000) < patient.urgency(8000), "nobody waits for it yet");
    }

    #[test]
    fn what_a_run_had_of_the_cores_is_counted() {
        let cores = Cores::new(1);
        let claim = cores.claim();
        let permit = claim.enter();
        thread::sleep(Duration::from_millis(5));
        drop(permit);
        let had = claim.had.load(Ordering::Relaxed);
        assert!((4000..60_000_000).contains(&had), "{had} us");
        drop(cores.claim().enter());
        assert_eq!(cores.state.lock().level, 0, "the level is that of the one who went last, when it began");
    }

    #[test]
    fn law_7_nobody_waits_for_long() {
        let cores = Cores::new(1);
        let (urgent, patient) = (standing_due(&cores, 0), standing_due(&cores, u64::MAX / 2));
        let held = urgent.enter();
        thread::scope(|scope| {
            scope.spawn(|| drop(patient.enter()));
        });
        assert_eq!((waiting(&cores), busy(&cores)), (0, CORE));
        drop(held);
        assert_eq!(busy(&cores), 0);
    }

    #[test]
    fn threads_that_wait_for_storage_take_little_of_a_core() {
        let cores = Cores::new(1);
        let claim = cores.claim();
        claim.set_computing(0.1);
        let permits: Vec<Permit<'_>> = (0..10).map(|_| claim.enter()).collect();
        assert_eq!((busy(&cores), waiting(&cores)), (CORE, 0));
        drop(permits);
        assert_eq!(busy(&cores), 0);
    }

    #[test]
    fn many_threads_of_many_runs_leave_nothing_behind() {
        let cores = Cores::new(2);
        thread::scope(|scope| {
            for run in 0..8_u64 {
                let cores = &cores;
                scope.spawn(move || {
                    let claim = standing_due(cores, run * 100);
                    for turn in 0..500 {
                        claim.set_computing(f64::from(turn % 10) / 10.0);
                        let permit = claim.enter();
                        thread::yield_now();
                        drop(permit);
                    }
                });
            }
        });
        assert_eq!((busy(&cores), waiting(&cores)), (0, 0));
    }
}
