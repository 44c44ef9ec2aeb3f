//! Limits the bytes in flight.
//!
//! In: requests for memory, by batches (slabs) and by samples in preparation. Out: grants. A sample that does not fit waits until
//! others have finished. A sample that could never fit runs alone, once the consumer needs its batch next. A slow sample never
//! waits at its first attempt, and leaves a quarter of the budget to others.
//!
//! Always true: `used <= limit`, with three exceptions (law 5): the batch that the consumer needs next (its slab, and values
//! without a fixed shape), one sample of that batch at a time, and a limit that falls while memory is in use.
//!
//! There is no deadlock. No sample waits while it holds memory, so every sample that holds some will finish. If no sample holds
//! memory, the earliest sample of the next batch is granted. If that batch is complete, taking it frees memory. A sample that is
//! not due waits only briefly and then gives up its thread, which may be needed for one that is due.

use std::collections::BTreeMap;
use std::sync::Arc;

use feedline_memory::{Condvar, Mutex, MutexGuard};

use super::{MachineShare, Working};

/// The default budget if the machine's memory is unknown.
const FALLBACK: u64 = 1_000_000_000;
/// Upper limit of the default budget.
const MAX_DEFAULT: u64 = 2_000_000_000;

/// A batch among all that use one budget. Within a run, the smaller one is needed sooner. Between runs, the older run comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchNeed {
    /// The run, as numbered by [`Budget::number_run`].
    pub run: u64,
    /// The batch's number in it.
    pub batch: u64,
}

/// What a sample does if memory is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It waits: until its turn if it is due, otherwise briefly.
    Waits,
    /// It gives up.
    None,
}

/// Limits the bytes in flight.
#[derive(Debug)]
pub struct Budget {
    limit: Limit,
    pub(super) machine_memory: u64,
    pub(super) account: Mutex<Account>,
    pub(super) released: Condvar,
}

/// The limit of a budget.
#[derive(Debug)]
enum Limit {
    /// A fixed number.
    Fixed(u64),
    /// This loader's share of these bytes. It changes when other loaders start or stop iterating.
    Shared(u64, Arc<MachineShare>),
}

#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) used: u64,
    peak: u64,
    runs: u64,
    pub(super) tickets: u64,
    /// The batch that the consumer of each run needs next.
    fronts: BTreeMap<u64, u64>,
    /// The samples that hold memory or wait for it, and whether they wait.
    pub(super) active: BTreeMap<Ticket, bool>,
    /// Number of threads that wait for bytes. Notifying a condition variable is a system call, even if nobody waits.
    pub(super) waiting: usize,
}

/// A sample in preparation. Smaller is needed sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket {
    pub(super) batch: BatchNeed,
    pub(super) slot: usize,
    /// A unique number, because a slot may be prepared twice.
    pub(super) number: u64,
}

/// The numbers of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetSnapshot {
    /// Bytes allowed.
    pub limit: u64,
    /// Bytes in use.
    pub used: u64,
    /// The maximum of `used` so far.
    pub peak: u64,
}

impl Budget {
    /// A budget of `limit` bytes on a machine with unlimited memory.
    pub fn new(limit: u64) -> Arc<Self> {
        Self::fixed(limit, None)
    }

    /// A budget of `limit` bytes. No single request may exceed the machine's memory.
    pub fn fixed(limit: u64, machine_memory: Option<u64>) -> Arc<Self> {
        Self::limited(Limit::Fixed(limit), machine_memory)
    }

    /// A budget of `bytes` bytes. By default this loader's share of an eighth of the machine's memory, at most 2 GB.
    pub fn fixed_or_shared(bytes: Option<u64>, machine_memory: Option<u64>, share: &Arc<MachineShare>) -> Arc<Self> {
        let default_bytes = || machine_memory.map_or(FALLBACK, |bytes| (bytes / 8).min(MAX_DEFAULT));
        let limit = bytes.map_or_else(|| Limit::Shared(default_bytes(), Arc::clone(share)), Limit::Fixed);
        Self::limited(limit, machine_memory)
    }

    fn limited(limit: Limit, machine_memory: Option<u64>) -> Arc<Self> {
        Arc::new(Self {
            limit,
            machine_memory: machine_memory.unwrap_or(u64::MAX),
            account: Mutex::default(),
            released: Condvar::new(),
        })
    }

    /// The current limit. When another loader starts to iterate, it may fall below what is in use. Then only a due sample that runs
    /// alone is granted memory, until enough is returned.
    pub fn limit(&self) -> u64 {
        match &self.limit {
            Limit::Fixed(bytes) => *bytes,
            Limit::Shared(bytes, share) => share.bytes(*bytes),
        }
    }

    /// A number for a run, greater than those of all earlier runs.
    pub fn number_run(&self) -> u64 {
        let mut account = self.account.lock();
        account.runs += 1;
        account.runs
    }

    /// Sets the batch that the consumer needs next.
    pub fn set_front(&self, front: BatchNeed) {
        // A sample that was not due may be due now, so the waiters look again.
        let mut account = self.account.lock();
        account.fronts.insert(front.run, front.batch);
        self.wake(account);
    }

    /// Removes a run that has ended.
    pub fn end_run(&self, run: u64) {
        let mut account = self.account.lock();
        account.fronts.remove(&run);
        self.wake(account);
    }

    /// Whether a batch of `bytes` may be opened ahead. A quarter of the budget is reserved for samples in preparation.
    pub fn has_room_ahead(&self, bytes: u64) -> bool {
        let limit = self.limit();
        self.account.lock().used.saturating_add(bytes).saturating_add(limit / 4) <= limit
    }

    /// Books bytes for [`super::HeldBytes`].
    pub(super) fn hold(&self, bytes: u64) {
        self.account.lock().take(bytes);
    }

    /// Returns bytes that were held.
    pub(super) fn release(&self, bytes: u64) {
        let mut account = self.account.lock();
        account.used -= bytes;
        self.wake(account);
    }

    /// Releases the lock and wakes all waiting threads.
    pub(super) fn wake(&self, account: MutexGuard<'_, Account>) {
        let has_waiting = account.waiting > 0;
        // Waiters take the lock when they wake up, so it is released first. A thread counts as waiting before it releases the lock,
        // so none is missed.
        drop(account);
        if has_waiting {
            self.released.notify_all();
        }
    }

    /// Starts the preparation of the sample in `slot` of a batch.
    pub fn begin(self: &Arc<Self>, batch: BatchNeed, slot: usize, patience: Patience) -> Working {
        let ticket = Ticket { batch, slot, number: 0 };
        Working::new(Arc::clone(self), ticket, patience)
    }

    /// The account in numbers.
    pub fn snapshot(&self) -> BudgetSnapshot {
        let account = self.account.lock();
        BudgetSnapshot { limit: self.limit(), used: account.used, peak: account.peak }
    }
}

impl Account {
    pub(super) fn take(&mut self, bytes: u64) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
    }

    /// Whether the consumer of its run needs this batch next, or has needed it. True for a run without a front.
    pub(super) fn is_due(&self, need: BatchNeed) -> bool {
        self.fronts.get(&need.run).is_none_or(|front| need.batch <= *front)
    }

    /// Whether no earlier sample waits. Earlier samples of the same run always count. If this sample is due, a sample of another
    /// run counts only if it is due too.
    fn is_first_in_line(&self, ticket: Ticket) -> bool {
        let is_due = self.is_due(ticket.batch);
        let is_before = |other: &Ticket| other.batch.run == ticket.batch.run || !is_due || self.is_due(other.batch);
        // Tickets are ordered by run, batch, slot and number, so the range has all samples that are needed sooner.
        !self.active.range(..ticket).any(|(other, is_waiting)| *is_waiting && is_before(other))
    }

    pub(super) fn may_grant(&self, ticket: Ticket, bytes: u64, limit: u64) -> bool {
        let is_first_in_line = self.is_first_in_line(ticket);
        let fits = self.used.saturating_add(bytes) <= limit;
        let is_due = self.is_due(ticket.batch);
        // All others wait and hold nothing, so only this sample exceeds the limit.
        let runs_alone = || self.active.iter().all(|(other, is_waiting)| *other == ticket || *is_waiting);
        is_first_in_line && (fits || (is_due && runs_alone()))
    }

    /// Whether so much is free that even a sample that is not urgent may take it.
    pub(super) fn has_spare(&self, ticket: Ticket, bytes: u64, limit: u64) -> bool {
        let is_first_in_line = self.is_first_in_line(ticket);
        is_first_in_line && self.used.saturating_add(bytes).saturating_add(limit / 4) <= limit
    }

    /// Sets whether a sample waits.
    pub(super) fn set_waiting(&mut self, ticket: Ticket, is_waiting: bool) -> bool {
        let entry = self.active.get_mut(&ticket).expect("a ticket is active until its Working is dropped");
        std::mem::replace(entry, is_waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Cancel, Cancelled, NoMemory};
    use std::time::Duration;

    fn need(run: u64, batch: u64) -> BatchNeed {
        BatchNeed { run, batch }
    }
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn law_5_many_threads_stay_within_the_limit_and_all_finish() {
        let budget = Budget::new(100);
        budget.set_front(need(0, 0));
        thread::scope(|scope| {
            for slot in 0..8 {
                let budget = &budget;
                scope.spawn(move || {
                    for _ in 0..50 {
                        let mut allotment = 0;
                        loop {
                            let mut working = budget.begin(need(0, 0), slot, Patience::Waits);
                            working.grant(allotment, &Cancel::default()).unwrap();
                            working.reserve(20, &Cancel::default()).unwrap();
                            match working.reserve(30, &Cancel::default()) {
                                Ok(_) => break,
                                Err(NoMemory::NotNow { bytes }) => allotment = bytes,
                                Err(other) => panic!("{other}"),
                            }
                        }
                    }
                });
            }
        });
        let snapshot = budget.snapshot();
        assert_eq!(snapshot.used, 0);
        assert!(snapshot.peak <= 100, "peak {}", snapshot.peak);
    }

    #[test]
    fn a_sample_larger_than_the_limit_waits_for_the_others_and_runs_alone() {
        let budget = Budget::new(100);
        budget.set_front(need(0, 0));
        let mut other = budget.begin(need(0, 0), 1, Patience::Waits);
        other.reserve(60, &Cancel::default()).unwrap();
        let (granted, is_granted) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut giant = budget.begin(need(0, 0), 0, Patience::Waits);
                giant.reserve(500, &Cancel::default()).unwrap();
                granted.send(budget.snapshot().used).unwrap();
            });
            assert!(is_granted.recv_timeout(Duration::from_millis(80)).is_err(), "granted beside another sample");
            drop(other);
            assert_eq!(is_granted.recv_timeout(Duration::from_mins(1)).unwrap(), 500);
        });
        assert_eq!(budget.snapshot().used, 0);
    }

    #[test]
    fn law_5_only_the_batch_that_is_due_may_exceed_the_limit() {
        let budget = Budget::new(100);
        budget.set_front(need(0, 0));
        let mut later = budget.begin(need(0, 1), 0, Patience::Waits);
        let (granted, is_granted) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                while let Err(error) = later.reserve(500, &Cancel::default()) {
                    assert_eq!(error, NoMemory::NotNow { bytes: 500 });
                }
                granted.send(()).unwrap();
            });
            assert!(is_granted.recv_timeout(Duration::from_millis(80)).is_err(), "granted to a batch that can wait");
            budget.set_front(need(0, 1));
            is_granted.recv_timeout(Duration::from_mins(1)).unwrap();
        });
    }

    #[test]
    fn small_requests_share_a_grant_and_return_all_of_it() {
        let budget = Budget::new(1 << 20);
        let cancel = Cancel::default();
        let mut small = budget.begin(need(0, 0), 0, Patience::Waits);
        small.reserve(100, &cancel).unwrap();
        let granted = budget.snapshot().used;
        assert!(granted > 100, "more than requested, because memory is plenty");
        small.reserve(200, &cancel).unwrap();
        assert_eq!(budget.snapshot().used, granted, "the second request is part of the grant");
        small.end_keeping(300);
        assert_eq!(budget.snapshot().used, 300);
        let mut large = budget.begin(need(0, 0), 1, Patience::Waits);
        large.reserve(900_000, &cancel).unwrap();
        let mut last = budget.begin(need(0, 0), 2, Patience::Waits);
        last.reserve(100, &cancel).unwrap();
        assert_eq!(budget.snapshot().used, 300 + 900_000 + 100, "no more than requested, because memory is short");
    }

    #[test]
    fn bytes_that_a_batch_keeps_stay_booked() {
        let budget = Budget::new(100);
        let mut working = budget.begin(need(0, 0), 0, Patience::Waits);
        working.reserve(60, &Cancel::default()).unwrap();
        working.end_keeping(20);
        assert_eq!(budget.snapshot().used, 20);
        budget.release(20);
        assert_eq!(budget.snapshot().used, 0);
    }

    #[test]
    fn samples_of_different_runs_in_the_same_slot_do_not_meet() {
        let budget = Budget::new(100);
        let (mut first, second) =
            (budget.begin(need(1, 0), 0, Patience::Waits), budget.begin(need(1, 0), 0, Patience::Waits));
        first.reserve(10, &Cancel::default()).unwrap();
        drop(second);
        assert_eq!(budget.snapshot().used, 10);
        drop(first);
        assert_eq!(budget.snapshot().used, 0);
    }

    #[test]
    fn law_7_the_batch_that_a_consumer_waits_for_is_due_whatever_other_runs_delivered() {
        let budget = Budget::new(100);
        budget.set_front(need(2, 0));
        budget.set_front(need(1, 9));
        let mut ahead = budget.begin(need(1, 12), 0, Patience::Waits);
        assert_eq!(ahead.reserve(150, &Cancel::default()), Err(NoMemory::NotNow { bytes: 150 }));
        let mut due = budget.begin(need(2, 0), 0, Patience::Waits);
        drop(ahead);
        assert!(due.reserve(150, &Cancel::default()).is_ok(), "larger than the budget, it runs alone");
        drop(due);
        budget.end_run(1);
        assert_eq!(budget.snapshot().used, 0);
    }

    #[test]
    fn waiting_ends_when_cancelled_and_the_impossible_is_refused_at_once() {
        let budget = Budget::fixed(10, Some(1000));
        budget.set_front(need(0, 0));
        let mut running = budget.begin(need(0, 1), 0, Patience::Waits);
        running.reserve(10, &Cancel::default()).unwrap();
        assert_eq!(
            budget.begin(need(0, 0), 7, Patience::Waits).reserve(1001, &Cancel::default()),
            Err(NoMemory::TooLarge { bytes: 1001, memory: 1000 })
        );
        assert_eq!(running.reserve(1, &Cancel::default()), Err(NoMemory::NotNow { bytes: 11 }));
        let cancel = Cancel::default();
        cancel.cancel();
        assert_eq!(
            budget.begin(need(0, 0), 1, Patience::Waits).reserve(1, &cancel),
            Err(NoMemory::Cancelled(Cancelled))
        );
    }
}
