//! The cores that several runs of one process share.
//!
//! In: threads that want to prepare something, each with the time at which its run is due. Out: leave to do so, by least slack:
//! whose consumers will be the first to wait goes first. A run whose threads mostly wait for storage takes only the part of a
//! core that they compute. It orders who begins; nobody is interrupted, and nobody waits longer than [`PATIENCE`], so a run
//! that is never the first still moves, and a thread that holds a core while it waits for memory holds up nobody for long.
//!
//! Always true: with one run nobody waits while there is a core.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::sync::{AtomicBool, Deadline, Mutex, MutexGuard, Ordering, Thread, current};

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
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    busy: u32,
    /// By due time, then by who came first.
    waiting: BTreeMap<(u64, u64), Arc<Waiter>>,
    came: u64,
}

#[derive(Debug)]
struct Waiter {
    thread: Thread,
    weight: u32,
    may_go: AtomicBool,
}

/// A run's place at the cores.
#[derive(Debug)]
pub struct Seat {
    cores: Arc<Cores>,
    /// When its consumer will wait if nothing is finished before, in microseconds since the cores were there.
    due: AtomicU64,
    weight: AtomicU32,
}

/// Leave to prepare something, until it is dropped.
#[derive(Debug)]
pub struct Permit<'a> {
    cores: &'a Cores,
    weight: u32,
}

impl Cores {
    /// So many cores.
    pub fn new(count: usize) -> Arc<Self> {
        let limit = u32::try_from(count).unwrap_or(u32::MAX).saturating_mul(CORE);
        Arc::new(Self { limit, began: Instant::now(), state: Mutex::default() })
    }

    /// A place for a run, which is due at once.
    pub fn seat(self: &Arc<Self>) -> Seat {
        Seat { cores: Arc::clone(self), due: AtomicU64::new(0), weight: AtomicU32::new(CORE) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self, weight: u32) {
        let mut state = self.lock();
        state.busy -= weight;
        while let Some(first) = state.waiting.first_entry() {
            let weight = first.get().weight;
            if !state_has_room(self.limit, state.busy, weight) {
                break;
            }
            let Some((_, waiter)) = state.waiting.pop_first() else { break };
            state.busy += weight;
            waiter.may_go.store(true, Ordering::Release);
            waiter.thread.unpark();
        }
    }
}

fn state_has_room(limit: u32, busy: u32, weight: u32) -> bool {
    busy == 0 || busy + weight <= limit
}

impl Seat {
    /// Says when the run's consumer will wait if nothing is finished before.
    pub fn set_due(&self, due: Instant) {
        let micros = due.saturating_duration_since(self.cores.began).as_micros();
        self.due.store(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Says which part of their time the run's threads compute.
    pub fn set_computing(&self, part: f64) {
        let weight = (part * f64::from(CORE)) as u32;
        self.weight.store(weight.clamp(LEAST, CORE), Ordering::Relaxed);
    }

    /// Waits for a core while others are more urgent.
    pub fn enter(&self) -> Permit<'_> {
        let (cores, weight) = (&*self.cores, self.weight.load(Ordering::Relaxed));
        let permit = Permit { cores, weight };
        let mut state = cores.lock();
        if state.waiting.is_empty() && state_has_room(cores.limit, state.busy, weight) {
            state.busy += weight;
            return permit;
        }
        let waiter = Arc::new(Waiter { thread: current(), weight, may_go: AtomicBool::new(false) });
        state.came += 1;
        let place = (self.due.load(Ordering::Relaxed), state.came);
        state.waiting.insert(place, Arc::clone(&waiter));
        drop(state);
        let deadline = Deadline::after(PATIENCE);
        while !waiter.may_go.load(Ordering::Acquire) {
            if deadline.park() {
                continue;
            }
            let mut state = cores.lock();
            // It may have got leave just now.
            if state.waiting.remove(&place).is_some() {
                state.busy += weight;
            }
            break;
        }
        permit
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.cores.leave(self.weight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    fn waiting(cores: &Cores) -> usize {
        cores.lock().waiting.len()
    }

    fn seat_due(cores: &Arc<Cores>, micros: u64) -> Seat {
        let seat = cores.seat();
        seat.set_due(cores.began + Duration::from_micros(micros));
        seat
    }

    /// Who goes in which order when the only core becomes free, all having asked within the time that they wait.
    fn order(dues: &[u64]) -> Option<Vec<u64>> {
        let cores = Cores::new(1);
        let first = cores.seat();
        let (went, order) = mpsc::channel();
        let held = first.enter();
        thread::scope(|scope| {
            let began = Instant::now();
            for (number, &due) in dues.iter().enumerate() {
                let (cores, went) = (&cores, went.clone());
                scope.spawn(move || {
                    let seat = seat_due(cores, due);
                    let _permit = seat.enter();
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
        let found = (0..50).find_map(|_| order(&[5000, 900, 7000, 20]));
        assert_eq!(found, Some(vec![20, 900, 5000, 7000]));
    }

    #[test]
    fn law_7_nobody_waits_for_long() {
        let cores = Cores::new(1);
        let (urgent, patient) = (seat_due(&cores, 0), seat_due(&cores, u64::MAX / 2));
        let held = urgent.enter();
        thread::scope(|scope| {
            scope.spawn(|| drop(patient.enter()));
        });
        assert_eq!((waiting(&cores), cores.lock().busy), (0, CORE));
        drop(held);
        assert_eq!(cores.lock().busy, 0);
    }

    #[test]
    fn threads_that_wait_for_storage_take_little_of_a_core() {
        let cores = Cores::new(1);
        let seat = cores.seat();
        seat.set_computing(0.1);
        let permits: Vec<Permit<'_>> = (0..10).map(|_| seat.enter()).collect();
        assert_eq!((waiting(&cores), cores.lock().busy), (0, CORE));
        drop(permits);
        assert_eq!(cores.lock().busy, 0);
    }

    #[test]
    fn many_threads_of_many_runs_leave_nothing_behind() {
        let cores = Cores::new(2);
        thread::scope(|scope| {
            for run in 0..8_u64 {
                let cores = &cores;
                scope.spawn(move || {
                    let seat = seat_due(cores, run * 100);
                    for turn in 0..500 {
                        seat.set_computing(f64::from(turn % 10) / 10.0);
                        let permit = seat.enter();
                        thread::yield_now();
                        drop(permit);
                    }
                });
            }
        });
        assert_eq!((waiting(&cores), cores.lock().busy), (0, 0));
    }
}
