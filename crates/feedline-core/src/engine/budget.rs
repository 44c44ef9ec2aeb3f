//! Bytes in flight, bounded.
//!
//! In: requests for memory, by batches (slabs and loose values) and by samples in preparation. Out: grants. A sample that
//! does not fit waits until others have finished; one that could never fit runs alone.
//!
//! Always true: `used <= limit`, except for the one head sample that runs alone and the one batch that the consumer
//! needs next (law 5). No deadlock: a sample in preparation either runs, and will finish, or waits here, and when all
//! wait the earliest is granted.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Cancel, Cancelled};

/// The memory budget where none is given and the machine's memory is not known.
const FALLBACK: u64 = 1_000_000_000;
/// The greatest memory budget that is taken unasked.
const MOST_UNASKED: u64 = 2_000_000_000;
/// How often a waiting sample looks at the cancel token.
const CANCEL_POLL: Duration = Duration::from_millis(50);

/// The place of a sample in the stream: batches in order, slots in order. Smaller is needed sooner.
pub type Need = (u64, usize);

/// The account of memory in flight.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    used: u64,
    peak: u64,
    active: BTreeMap<Need, Active>,
}

#[derive(Debug, Default)]
struct Active {
    granted: u64,
    is_waiting: bool,
}

/// The account in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetSnapshot {
    /// Bytes allowed.
    pub limit: u64,
    /// Bytes in use now.
    pub used: u64,
    /// Most bytes ever in use.
    pub peak: u64,
}

impl Budget {
    /// An account of `limit` bytes.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, state: Mutex::default(), released: Condvar::new() })
    }

    /// An account of `asked` bytes; if none is asked for, an eighth of the machine's memory within bounds.
    pub fn asked_or_default(asked: Option<u64>, machine_memory: Option<u64>) -> Arc<Self> {
        let unasked = || machine_memory.map_or(FALLBACK, |bytes| (bytes / 8).min(MOST_UNASKED));
        Self::new(asked.unwrap_or_else(unasked))
    }

    /// Whether a batch of `bytes` may be opened beside what is in use.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.lock().used.saturating_add(bytes) <= self.limit
    }

    /// Books bytes that a batch holds until [`Budget::release`].
    pub fn hold(&self, bytes: u64) {
        self.lock().take(bytes);
    }

    /// Returns bytes that a batch held.
    pub fn release(&self, bytes: u64) {
        self.lock().used -= bytes;
        self.released.notify_all();
    }

    /// Begins the preparation of a sample.
    pub fn begin(self: &Arc<Self>, need: Need) -> Working {
        self.lock().active.insert(need, Active::default());
        Working { budget: Arc::clone(self), need }
    }

    /// The account in numbers.
    pub fn snapshot(&self) -> BudgetSnapshot {
        let state = self.lock();
        BudgetSnapshot { limit: self.limit, used: state.used, peak: state.peak }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, bytes: u64) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
    }

    fn may_grant(&self, need: Need, bytes: u64, limit: u64) -> bool {
        let is_first_in_line = !self.active.range(..need).any(|(_, active)| active.is_waiting);
        let fits = self.used.saturating_add(bytes) <= limit;
        let runs_alone = || self.active.iter().all(|(other, active)| *other == need || active.is_waiting);
        is_first_in_line && (fits || runs_alone())
    }

    fn entry(&mut self, need: Need) -> &mut Active {
        self.active.get_mut(&need).expect("a sample is active until its Working is dropped")
    }
}

/// The memory of one sample in preparation; returned when dropped.
#[derive(Debug)]
pub struct Working {
    budget: Arc<Budget>,
    need: Need,
}

impl Working {
    /// Waits until `bytes` more may be used; says how long that took.
    pub fn reserve(&self, bytes: u64, cancel: &Cancel) -> Result<Duration, Cancelled> {
        let mut state = self.budget.lock();
        let mut since = None;
        while !state.may_grant(self.need, bytes, self.budget.limit) {
            if cancel.is_cancelled() {
                state.entry(self.need).is_waiting = false;
                return Err(Cancelled);
            }
            since.get_or_insert_with(Instant::now);
            state.entry(self.need).is_waiting = true;
            // Another waiter may now be the one that runs alone.
            self.budget.released.notify_all();
            state = self.budget.released.wait_timeout(state, CANCEL_POLL).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.take(bytes);
        let entry = state.entry(self.need);
        entry.is_waiting = false;
        entry.granted += bytes;
        Ok(since.map(|since| since.elapsed()).unwrap_or_default())
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        if let Some(active) = state.active.remove(&self.need) {
            state.used -= active.granted;
        }
        drop(state);
        self.budget.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn law_5_many_threads_stay_within_the_limit_and_all_finish() {
        let budget = Budget::new(100);
        thread::scope(|scope| {
            for number in 0..8 {
                let budget = &budget;
                scope.spawn(move || {
                    for round in 0..50 {
                        let working = budget.begin((round, number));
                        working.reserve(20, &Cancel::default()).unwrap();
                        working.reserve(30, &Cancel::default()).unwrap();
                    }
                });
            }
        });
        let snapshot = budget.snapshot();
        assert_eq!(snapshot.used, 0);
        // Two samples that each hold 20 and wait for 30 are the case for which the first is let through alone.
        assert!(snapshot.peak <= 100 + 30, "peak {}", snapshot.peak);
    }

    #[test]
    fn a_sample_larger_than_the_limit_waits_for_the_others_and_runs_alone() {
        let budget = Budget::new(100);
        let other = budget.begin((0, 1));
        other.reserve(60, &Cancel::default()).unwrap();
        let (granted, is_granted) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let giant = budget.begin((0, 0));
                giant.reserve(500, &Cancel::default()).unwrap();
                granted.send(budget.snapshot().used).unwrap();
            });
            assert!(is_granted.recv_timeout(Duration::from_millis(80)).is_err(), "granted beside another sample");
            drop(other);
            assert_eq!(is_granted.recv_timeout(Duration::from_secs(10)).unwrap(), 500);
        });
        assert_eq!(budget.snapshot().used, 0);
    }

    #[test]
    fn waiting_ends_when_cancelled() {
        let budget = Budget::new(10);
        let running = budget.begin((0, 0));
        running.reserve(10, &Cancel::default()).unwrap();
        let cancel = Cancel::default();
        cancel.cancel();
        assert_eq!(budget.begin((0, 1)).reserve(1, &cancel), Err(Cancelled));
    }
}
