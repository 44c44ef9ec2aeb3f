//! How many threads prepare samples, where the plan leaves that open.
//!
//! In: how long the consumer waited, how busy the threads were, and with what. Out: a number of threads. It begins with one per
//! core that the process may use. Threads that wait for storage or sleep leave cores idle, so more of them help as long as the
//! consumer waits; where the consumer never waits and threads are idle, fewer do.
//!
//! Always true: the number lies between one and [`MOST_PER_CORE`] per core, and decides no byte of the stream.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::metrics::{process_cpu_time, thread_cpu_time};
use crate::plan::Workers;

/// Threads for each core at most.
pub(super) const MOST_PER_CORE: usize = 8;
/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The consumer waits, if it does so for more than this part of the time.
const WAITS: f64 = 0.02;
/// Threads that use less than this part of their time, or wait for a core, are waiting themselves.
const COMPUTES: f64 = 0.7;
/// The process uses all its cores, if it uses more than this part of them.
const ALL_CORES: f64 = 0.8;
/// Threads are idle, if they are for more than this part of the time.
const IDLE: f64 = 0.5;
/// Looks in a row at which there were idle threads before one ends.
const PATIENCE: u32 = 8;

/// The threads of a run, counted.
#[derive(Debug)]
pub(super) struct Crew {
    wanted: AtomicUsize,
    most: usize,
    cores: usize,
    busy_nanos: AtomicU64,
    cpu_nanos: AtomicU64,
    core_wait_nanos: AtomicU64,
}

/// What was seen at the last look.
#[derive(Debug)]
pub(super) struct Look {
    at: Instant,
    busy: Duration,
    cpu: Duration,
    core_wait: Duration,
    process: Duration,
    waited: Duration,
    idle_looks: u32,
}

impl Crew {
    pub fn new(workers: Workers) -> Self {
        let cores = workers.count();
        let most = if workers == Workers::Auto { cores * MOST_PER_CORE } else { cores };
        Self::of(cores, most)
    }

    fn of(cores: usize, most: usize) -> Self {
        let [busy_nanos, cpu_nanos, core_wait_nanos] = [const { AtomicU64::new(0) }; 3];
        Self { wanted: AtomicUsize::new(cores), most, cores, busy_nanos, cpu_nanos, core_wait_nanos }
    }

    /// Threads that there should be.
    pub fn wanted(&self) -> usize {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Runs a task of this thread, and books how long it took and how much of that was work.
    pub fn time<T>(&self, task: impl FnOnce() -> T) -> T {
        if self.most == self.cores {
            return task();
        }
        let (start, cpu) = (Instant::now(), thread_cpu_time());
        let result = task();
        self.busy_nanos.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        let cpu = thread_cpu_time().saturating_sub(cpu);
        self.cpu_nanos.fetch_add(cpu.as_nanos() as u64, Ordering::Relaxed);
        result
    }

    /// Which part of their time threads have computed so far, or would have, had there been a core.
    pub fn computing(&self) -> f64 {
        let nanos = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let busy = nanos(&self.busy_nanos);
        if busy > 0.0 { ((nanos(&self.cpu_nanos) + nanos(&self.core_wait_nanos)) / busy).min(1.0) } else { 1.0 }
    }

    /// Leaves out time in which a thread waited for memory: more threads would wait too.
    pub fn leave_out(&self, waited: Duration) {
        if self.most > self.cores {
            self.busy_nanos.fetch_sub(waited.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// What there is to see now; `waited` is how long the consumer has waited in all, `core_wait` how long threads have for cores.
    pub fn look(&self, waited: Duration, core_wait: Duration) -> Look {
        let nanos = |counter: &AtomicU64| Duration::from_nanos(counter.load(Ordering::Relaxed));
        Look {
            at: Instant::now(),
            busy: nanos(&self.busy_nanos),
            cpu: nanos(&self.cpu_nanos),
            core_wait,
            process: process_cpu_time(),
            waited,
            idle_looks: 0,
        }
    }

    /// Compares with the last look, if that is a while ago; says whether there should be another number of threads.
    pub fn adjust(&self, last: &mut Look, waited: Duration, core_wait: impl FnOnce() -> Duration) -> bool {
        let passed = last.at.elapsed();
        if passed < LOOK_EVERY || self.most == self.cores {
            return false;
        }
        let mut now = self.look(waited, core_wait());
        self.core_wait_nanos.store(now.core_wait.as_nanos() as u64, Ordering::Relaxed);
        let part = |time: Duration, of: Duration| time.as_secs_f64() / of.as_secs_f64().max(f64::MIN_POSITIVE);
        let wanted = self.wanted();
        let busy = now.busy.saturating_sub(last.busy);
        let is_awaited = part(now.waited.saturating_sub(last.waited), passed) > WAITS;
        let computed = (now.cpu + now.core_wait).saturating_sub(last.cpu + last.core_wait);
        let is_computing = part(computed, busy) > COMPUTES;
        let has_cores = part(now.process.saturating_sub(last.process), passed * self.cores as u32) < ALL_CORES;
        let is_idle = part(busy, passed * wanted as u32) < 1.0 - IDLE;
        now.idle_looks = if is_idle && !is_awaited { last.idle_looks + 1 } else { 0 };
        let next = if is_awaited && !is_computing && has_cores && !is_idle {
            (wanted + wanted.div_ceil(4)).min(self.most)
        } else if now.idle_looks >= PATIENCE {
            now.idle_looks = 0;
            (wanted - 1).max(1)
        } else {
            wanted
        };
        *last = now;
        self.wanted.store(next, Ordering::Relaxed);
        next != wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crew(cores: usize) -> Crew {
        Crew::of(cores, cores * MOST_PER_CORE)
    }

    /// A second in which each thread was busy for `busy`, computed for `cpu`, and the consumer waited for `waited`.
    fn second(crew: &Crew, look: &mut Look, [busy, cpu, waited]: [f64; 3]) {
        busy_second(crew, look, [busy, cpu, waited, 0.0]);
    }

    /// The same on a machine where each thread waited so long for a core.
    fn busy_second(crew: &Crew, look: &mut Look, [busy, cpu, waited, core_wait]: [f64; 4]) {
        let nanos = |part: f64| (part * 1e9) as u64 * crew.wanted() as u64;
        crew.busy_nanos.fetch_add(nanos(busy), Ordering::Relaxed);
        crew.cpu_nanos.fetch_add(nanos(cpu), Ordering::Relaxed);
        look.at = Instant::now().checked_sub(Duration::from_secs(1)).expect("the machine runs for a second");
        let waited = look.waited + Duration::from_secs_f64(waited);
        let core_wait = look.core_wait + Duration::from_nanos(nanos(core_wait));
        crew.adjust(look, waited, || core_wait);
    }

    #[test]
    fn threads_that_wait_get_company_as_long_as_the_consumer_waits() {
        let crew = crew(2);
        let mut look = crew.look(Duration::ZERO, Duration::ZERO);
        second(&crew, &mut look, [1.0, 0.01, 0.5]);
        assert_eq!(crew.wanted(), 3);
        (0..20).for_each(|_| second(&crew, &mut look, [1.0, 0.01, 0.5]));
        assert_eq!(crew.wanted(), 16, "no more than eight for each core");
        (0..5).for_each(|_| second(&crew, &mut look, [0.9, 0.01, 0.0]));
        assert_eq!(crew.wanted(), 16, "all are needed");
    }

    #[test]
    fn threads_that_compute_stay_as_many_as_there_are_cores() {
        let crew = crew(2);
        let mut look = crew.look(Duration::ZERO, Duration::ZERO);
        (0..5).for_each(|_| second(&crew, &mut look, [1.0, 0.98, 0.9]));
        assert_eq!(crew.wanted(), 2);
    }

    #[test]
    fn threads_that_wait_for_cores_of_a_busy_machine_get_no_company() {
        let crew = crew(2);
        let mut look = crew.look(Duration::ZERO, Duration::ZERO);
        (0..5).for_each(|_| busy_second(&crew, &mut look, [1.0, 0.3, 0.9, 0.65]));
        assert_eq!(crew.wanted(), 2);
        assert!((crew.computing() - 0.95).abs() < 1e-6, "{}", crew.computing());
    }

    #[test]
    fn idle_threads_end_one_by_one_down_to_one() {
        let crew = crew(2);
        let mut look = crew.look(Duration::ZERO, Duration::ZERO);
        (0..PATIENCE - 1).for_each(|_| second(&crew, &mut look, [0.1, 0.1, 0.0]));
        assert_eq!(crew.wanted(), 2);
        (0..50).for_each(|_| second(&crew, &mut look, [0.1, 0.1, 0.0]));
        assert_eq!(crew.wanted(), 1);
    }

    #[test]
    fn a_number_that_was_asked_for_stays() {
        let crew = Crew::new(Workers::Count(3));
        let mut look = crew.look(Duration::ZERO, Duration::ZERO);
        second(&crew, &mut look, [1.0, 0.0, 1.0]);
        assert_eq!(crew.wanted(), 3);
    }
}
