//! Shares the cores of a process between its runs.
//!
//! In: threads that want to prepare a task, each with the deadline of its run. Out: permits, by the earliest deadline: the run
//! whose consumer will wait first goes first. If several consumers wait already, the run that has used the cores least for its
//! weight goes first, so that the cores are divided by weight. A run whose threads mostly wait for storage counts only with the
//! fraction of a core that its threads compute.
//!
//! The permits decide who starts; no thread is interrupted. No thread waits longer than [`PATIENCE`]. So a run that is never first
//! still moves, and a thread that holds a core while it waits for memory delays others only briefly.
//!
//! Always true: with a single run no thread waits while there is a free core.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use super::CoreWeight;
use super::sync::{AtomicBool, Deadline, Mutex, Ordering, Thread, current};

/// Upper limit of the wait for a core.
const PATIENCE: Duration = Duration::from_millis(50);
/// How much more than a waiting run a run may use before its thread hands over the core. A hand-over wakes another thread, and the
/// core idles meanwhile: for tasks of less than a millisecond that would be a tenth of the time.
const TURN: Duration = Duration::from_millis(15);
/// Cores are counted in thousandths.
const CORE: u32 = 1000;
/// Weight of a thread that hardly computes.
const MIN_WEIGHT: u32 = CORE / 20;

/// The cores that runs share.
#[derive(Debug)]
pub struct Cores {
    limit: u32,
    began: Instant,
    state: Mutex<CoresState>,
}

#[derive(Debug, Default)]
struct CoresState {
    busy: u32,
    /// By arrival. There are at most as many as threads.
    waiting: BTreeMap<u64, Arc<Waiter>>,
    arrivals: u64,
    /// The virtual time of start-time fair queueing: what the run that was admitted last had used. Two kinds of admission do not
    /// count: as [`Urgency::Due`], and after a wait that [`PATIENCE`] ended. A new or idle run starts from here, so it gets no credit
    /// for time in which it used no core.
    virtual_time: u64,
}

/// The order of admission: overdue runs by what they have used, the others by deadline. Equal ones go by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    /// Microseconds of cores that the run has used, divided by its weight. The variants are in order: overdue runs come first.
    Overdue(u64),
    /// The deadline of the run, in microseconds since the cores were created.
    Due(u64),
}

impl Urgency {
    /// Whether a waiting run of this urgency gets the core of a thread that has finished a task.
    fn precedes(self, other: Self) -> bool {
        match (self, other) {
            (Self::Overdue(waiting), Self::Overdue(working)) => {
                waiting.saturating_add(TURN.as_micros() as u64) <= working
            }
            _ => self < other,
        }
    }
}

#[derive(Debug)]
struct Waiter {
    thread: Thread,
    run: Arc<RunUse>,
    weight: u32,
    may_go: AtomicBool,
}

/// What a run needs of the cores, and what it had. Other threads read it while threads of the run wait.
#[derive(Debug)]
struct RunUse {
    /// Its weight beside other runs, in thousandths.
    share: AtomicU32,
    /// When its consumer will wait if nothing is finished before. In microseconds since the cores were created.
    due: AtomicU64,
    /// Microseconds of cores that it has used, divided by its weight.
    used_micros: AtomicU64,
    /// Number of threads that have a permit or wait for one.
    active: AtomicU32,
}

impl RunUse {
    /// Its urgency `now`, in microseconds since the cores were created.
    fn urgency(&self, now: u128) -> Urgency {
        let due = self.due.load(Ordering::Relaxed);
        if u128::from(due) > now {
            Urgency::Due(due)
        } else {
            Urgency::Overdue(self.used_micros.load(Ordering::Relaxed))
        }
    }
}

/// The claim of a run on the cores.
#[derive(Debug)]
pub struct CoreClaim {
    cores: Arc<Cores>,
    run: Arc<RunUse>,
    /// The part of a core that a thread of the run computes, in thousandths.
    weight: AtomicU32,
}

/// Permission to prepare tasks. Ends when dropped.
#[derive(Debug)]
pub struct Permit<'a> {
    claim: &'a CoreClaim,
    weight: u32,
    since: Instant,
}

impl Cores {
    /// `count` cores, none in use.
    pub fn new(count: usize) -> Arc<Self> {
        let limit = u32::try_from(count).unwrap_or(u32::MAX).saturating_mul(CORE);
        Arc::new(Self { limit, began: Instant::now(), state: Mutex::default() })
    }

    /// A claim for a run. It is due at once.
    pub fn claim(self: &Arc<Self>) -> CoreClaim {
        let run = RunUse {
            share: AtomicU32::new(CoreWeight::ONE.thousandths()),
            due: AtomicU64::new(0),
            used_micros: AtomicU64::new(0),
            active: AtomicU32::new(0),
        };
        CoreClaim { cores: Arc::clone(self), run: Arc::new(run), weight: AtomicU32::new(CORE) }
    }

    /// Returns a permit, and gives it to the most urgent waiting threads.
    fn leave(&self, weight: u32) {
        let now = self.began.elapsed().as_micros();
        let mut state = self.state.lock();
        // The permit's own weight, not the claim's: that may have changed meanwhile.
        state.busy -= weight;
        while let Some((urgency, arrival)) = state.most_urgent(now) {
            let weight = state.waiting[&arrival].weight;
            if !has_room(self.limit, state.busy, weight) {
                break;
            }
            let Some(waiter) = state.waiting.remove(&arrival) else { break };
            state.busy += weight;
            if let Urgency::Overdue(used_micros) = urgency {
                state.virtual_time = state.virtual_time.max(used_micros);
            }
            // Pairs with the acquire load in `enter`. The permit is counted in `busy` before the waiter sees it.
            waiter.may_go.store(true, Ordering::Release);
            waiter.thread.unpark();
        }
    }
}

impl CoresState {
    /// The waiting thread that goes next: the urgency of its run at this moment, and its arrival.
    fn most_urgent(&self, now: u128) -> Option<(Urgency, u64)> {
        self.waiting.iter().map(|(&arrival, waiter)| (waiter.run.urgency(now), arrival)).min()
    }
}

fn has_room(limit: u32, busy: u32, weight: u32) -> bool {
    // One thread may always run, even if it weighs more than the whole limit.
    busy == 0 || busy + weight <= limit
}

impl CoreClaim {
    /// Sets when the run's consumer will wait if nothing is finished before.
    pub fn set_due(&self, due: Instant) {
        let micros = due.saturating_duration_since(self.cores.began).as_micros();
        self.run.due.store(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Sets the weight of the run beside others.
    pub fn set_weight(&self, weight: CoreWeight) {
        self.run.share.store(weight.thousandths(), Ordering::Relaxed);
    }

    /// Sets the fraction of time in which the run's threads compute.
    pub(crate) fn set_computing(&self, part: f64) {
        let weight = (part * f64::from(CORE)) as u32;
        self.weight.store(weight.clamp(MIN_WEIGHT, CORE), Ordering::Relaxed);
    }

    /// Waits for a core in the order of urgency, at most `PATIENCE`. After that the thread starts without a free core.
    pub fn enter(&self) -> Permit<'_> {
        let (cores, weight) = (&*self.cores, self.weight.load(Ordering::Relaxed));
        let mut state = cores.state.lock();
        // An idle run has used less than the others. Without this it would come first until it had used as much. A run of which a
        // thread works or waits keeps its credit.
        if self.run.active.fetch_add(1, Ordering::Relaxed) == 0 {
            self.run.used_micros.fetch_max(state.virtual_time, Ordering::Relaxed);
        }
        if state.waiting.is_empty() && has_room(cores.limit, state.busy, weight) {
            state.busy += weight;
            state.virtual_time = state.virtual_time.max(self.run.used_micros.load(Ordering::Relaxed));
            drop(state);
            return Permit { claim: self, weight, since: Instant::now() };
        }
        let run = Arc::clone(&self.run);
        let waiter = Arc::new(Waiter { thread: current(), run, weight, may_go: AtomicBool::new(false) });
        state.arrivals += 1;
        let arrival = state.arrivals;
        state.waiting.insert(arrival, Arc::clone(&waiter));
        drop(state);
        let deadline = Deadline::after(PATIENCE);
        while !waiter.may_go.load(Ordering::Acquire) {
            // `unpark` before `park` is not lost: the thread keeps a token.
            if deadline.park() {
                continue;
            }
            let mut state = cores.state.lock();
            // If the entry is gone, `leave` has just granted the permit and counted it. Otherwise the thread starts without a free
            // core, and `busy` may exceed the limit.
            if state.waiting.remove(&arrival).is_some() {
                state.busy += weight;
            }
            break;
        }
        Permit { claim: self, weight, since: Instant::now() }
    }
}

impl Permit<'_> {
    /// A permit for one more task. Waits only if a more urgent run waits, or one that has had less by a whole turn, or if a thread
    /// started without a free core.
    #[must_use]
    pub fn renew(mut self) -> Self {
        self.count();
        let (claim, run) = (self.claim, &self.claim.run);
        let now = claim.cores.began.elapsed().as_micros();
        let state = claim.cores.state.lock();
        let is_crowded = state.busy > claim.cores.limit && state.busy > self.weight;
        let must_leave = state.most_urgent(now).is_some_and(|(first, _)| first.precedes(run.urgency(now)));
        drop(state);
        if !is_crowded && !must_leave {
            return self;
        }
        // The run stays active between the two permits.
        run.active.fetch_add(1, Ordering::Relaxed);
        drop(self);
        let permit = claim.enter();
        run.active.fetch_sub(1, Ordering::Relaxed);
        permit
    }

    /// Adds the time on the core since the last call.
    fn count(&mut self) {
        let now = Instant::now();
        // Time on a core, times the fraction of it that the thread computes.
        let used_micros = (now - self.since).as_micros() * u128::from(self.weight) / u128::from(CORE);
        // Start-time fair queueing: time counts less for a run of more weight.
        let share = self.claim.run.share.load(Ordering::Relaxed);
        let used_micros = used_micros * u128::from(CoreWeight::ONE.thousandths()) / u128::from(share.max(1));
        self.claim.run.used_micros.fetch_add(u64::try_from(used_micros).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.since = now;
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.count();
        self.claim.run.active.fetch_sub(1, Ordering::Relaxed);
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

    /// The order of admission when the only core becomes free. `None` if the threads did not all arrive in time.
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
        // On a busy machine the threads may not all arrive in time. Then there is nothing to check.
        let hours = [5, 3, 7, 1].map(|hours| hours * 3_600_000_000);
        let found = (0..50).find_map(|_| order(&hours));
        assert_eq!(found, Some([1, 3, 5, 7].map(|hours| hours * 3_600_000_000).to_vec()));
    }

    #[test]
    fn of_those_who_wait_already_the_one_that_had_least_goes_first_and_a_new_one_has_no_claims() {
        let cores = Cores::new(1);
        let (heavy, light, new) = (standing_due(&cores, 0), standing_due(&cores, 0), standing_due(&cores, 0));
        heavy.run.used_micros.store(9000, Ordering::Relaxed);
        light.run.used_micros.store(500, Ordering::Relaxed);
        assert!(light.run.urgency(1) < heavy.run.urgency(1));
        let patient = standing_due(&cores, u64::MAX / 2);
        assert!(heavy.run.urgency(1) < patient.run.urgency(1), "nobody waits for it yet");
        let held = heavy.enter();
        assert_eq!(cores.state.lock().virtual_time, 9000);
        drop(held);
        drop(new.enter());
        assert!(new.run.used_micros.load(Ordering::Relaxed) >= 9000, "as if it had been there");
        let (first, second) = (standing_due(&cores, 0), standing_due(&cores, 0));
        first.set_computing(0.1);
        second.set_computing(0.1);
        let working = first.enter();
        first.run.used_micros.store(100, Ordering::Relaxed);
        drop(first.enter());
        assert!(first.run.used_micros.load(Ordering::Relaxed) < 9000, "it was active all the time");
        drop(working);
    }

    #[test]
    fn time_counts_less_for_a_run_of_more_weight() {
        let cores = Cores::new(1);
        let used = |weight: f64| {
            let claim = cores.claim();
            claim.set_weight(CoreWeight::new(weight).unwrap());
            let permit = claim.enter();
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(20) {
                thread::yield_now();
            }
            let before = claim.run.used_micros.load(Ordering::Relaxed);
            drop(permit);
            (claim.run.used_micros.load(Ordering::Relaxed) - before) as f64 * weight
        };
        for weight in [0.5, 1.0, 4.0] {
            assert!(used(weight) >= 19_000.0, "at least the time that it held the core, for weight {weight}");
        }
        assert_eq!([0.0, -1.0, f64::NAN, f64::INFINITY, 1e9].map(CoreWeight::new), [None; 5]);
    }

    #[test]
    fn a_thread_keeps_its_core_for_a_turn_unless_a_more_urgent_run_waits() {
        let turn = TURN.as_micros() as u64;
        assert!(!Urgency::Overdue(100).precedes(Urgency::Overdue(99 + turn)));
        assert!(Urgency::Overdue(100).precedes(Urgency::Overdue(100 + turn)));
        assert!(Urgency::Overdue(u64::MAX).precedes(Urgency::Due(0)), "its consumer waits already");
        assert!(!Urgency::Due(0).precedes(Urgency::Overdue(u64::MAX)));
        assert!(Urgency::Due(1).precedes(Urgency::Due(2)));
        let cores = Cores::new(1);
        let (light, heavy) = (standing_due(&cores, 0), standing_due(&cores, 0));
        let permit = heavy.enter();
        heavy.run.used_micros.store(1 << 40, Ordering::Relaxed);
        let took_turns = thread::scope(|scope| {
            let other = scope.spawn(|| drop(light.enter()));
            while waiting(&cores) == 0 && !other.is_finished() {
                thread::yield_now();
            }
            let permit = permit.renew();
            // If the other thread ran out of patience before, it did not wait any more.
            drop(permit);
            other.join().is_ok()
        });
        assert!(took_turns);
        assert_eq!((busy(&cores), waiting(&cores)), (0, 0));
        let permit = heavy.enter().renew();
        assert_eq!((busy(&cores), waiting(&cores)), (CORE, 0), "nobody waits, so it stays");
        let has_renewed = AtomicBool::new(false);
        thread::scope(|scope| {
            // It waits until its patience ends, and starts without a free core. Then the first one has to wait at its next task.
            let other = scope.spawn(|| {
                let late = light.enter();
                while waiting(&cores) == 0 && !has_renewed.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                drop(late);
            });
            while busy(&cores) == CORE {
                thread::yield_now();
            }
            drop(permit.renew());
            has_renewed.store(true, Ordering::Relaxed);
            other.join().unwrap();
        });
        assert_eq!((busy(&cores), waiting(&cores)), (0, 0));
    }

    #[test]
    fn what_a_run_had_of_the_cores_is_counted() {
        let cores = Cores::new(1);
        let claim = cores.claim();
        let permit = claim.enter();
        thread::sleep(Duration::from_millis(5));
        drop(permit);
        let used_micros = claim.run.used_micros.load(Ordering::Relaxed);
        assert!((4000..60_000_000).contains(&used_micros), "{used_micros} us");
        drop(cores.claim().enter());
        assert_eq!(cores.state.lock().virtual_time, 0, "the level is that of the one who went last, when it began");
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
