//! The number of preparer threads, if the plan leaves it open.
//!
//! In: how long the consumer waited, how busy the threads were, and how much of that time they computed. Out: a number of threads.
//! It starts with one thread per core that the run may use. Threads that block on storage leave cores idle, so more threads help
//! while the consumer waits. If the consumer never waits and threads are idle, the number shrinks.
//!
//! Always true: the number lies between 1 and [`MAX_PER_CORE`] per core of this run's share. It does not change any byte of the
//! stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use feedline_data::cpu_time::{process_cpu_time, thread_cpu_time};
use feedline_data::memory::MachineShare;
use feedline_data::plan::Workers;
use feedline_memory::Mutex;

use crate::metrics::CoreMeter;

/// Upper limit of threads per core.
pub(super) const MAX_PER_CORE: usize = 8;
/// Interval between two adjustments.
const ADJUST_EVERY: Duration = Duration::from_millis(250);
/// The consumer counts as waiting above this fraction of the time.
const WAITS: f64 = 0.02;
/// Threads that compute or wait for a core for less than this fraction of their time are blocked on something else.
const COMPUTES: f64 = 0.7;
/// The process counts as using all its cores above this fraction.
const ALL_CORES: f64 = 0.8;
/// Threads count as idle above this fraction of the time.
const IDLE: f64 = 0.5;
/// Consecutive adjustments with idle threads before one thread ends.
const PATIENCE: u32 = 8;

/// Counts the threads of a run and decides how many there should be.
#[derive(Debug)]
pub(super) struct WorkerPool {
    target: AtomicUsize,
    size: PoolSize,
    /// Time spent in tasks, and CPU time of that.
    busy_nanos: AtomicU64,
    cpu_nanos: AtomicU64,
    /// The part of it in which threads waited for a core.
    core_wait_nanos: AtomicU64,
    /// The cores that its threads run on.
    pub on: CoreMeter,
    last: Mutex<UsageReading>,
}

/// Who decides the number of threads.
#[derive(Debug)]
enum PoolSize {
    /// The user set the number.
    Requested,
    /// The pool adjusts the number to the cores that this run may use.
    Auto(Arc<MachineShare>),
}

/// Counters at one adjustment.
#[derive(Debug)]
struct UsageReading {
    /// Cores that the run may use beside the other runs of the machine.
    cores: usize,
    at: Instant,
    busy: Duration,
    cpu: Duration,
    core_wait: Duration,
    process: Duration,
    waited: Duration,
    idle_rounds: u32,
}

impl WorkerPool {
    pub(super) fn new(workers: Workers, share: Arc<MachineShare>) -> Self {
        let count = workers.resolve(&share);
        Self::of(count, if workers == Workers::Auto { PoolSize::Auto(share) } else { PoolSize::Requested })
    }

    fn of(cores: usize, size: PoolSize) -> Self {
        let [busy_nanos, cpu_nanos, core_wait_nanos] = [const { AtomicU64::new(0) }; 3];
        let zero = Duration::ZERO;
        let at = Instant::now();
        let last = UsageReading {
            cores,
            at,
            busy: zero,
            cpu: zero,
            core_wait: zero,
            process: process_cpu_time(),
            waited: zero,
            idle_rounds: 0,
        };
        let (on, last) = (CoreMeter::default(), Mutex::new(last));
        Self { target: AtomicUsize::new(cores), size, busy_nanos, cpu_nanos, core_wait_nanos, on, last }
    }

    /// The target number of threads.
    pub(super) fn target(&self) -> usize {
        self.target.load(Ordering::Relaxed)
    }

    /// Runs a task and measures its time and CPU time.
    pub(super) fn time<T>(&self, task: impl FnOnce() -> T) -> T {
        if matches!(self.size, PoolSize::Requested) {
            return task();
        }
        let (start, cpu) = (Instant::now(), thread_cpu_time());
        let result = task();
        // Relaxed: the counters are independent statistics, read with a delay.
        self.busy_nanos.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        let cpu = thread_cpu_time().saturating_sub(cpu);
        self.cpu_nanos.fetch_add(cpu.as_nanos() as u64, Ordering::Relaxed);
        result
    }

    /// The fraction of their time in which threads computed or waited for a core.
    pub(super) fn computing(&self) -> f64 {
        let nanos = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let busy = nanos(&self.busy_nanos);
        if busy > 0.0 { ((nanos(&self.cpu_nanos) + nanos(&self.core_wait_nanos)) / busy).min(1.0) } else { 1.0 }
    }

    /// Excludes time in which a thread waited for memory: more threads would wait too.
    pub(super) fn leave_out(&self, waited: Duration) {
        if matches!(self.size, PoolSize::Auto(_)) {
            self.busy_nanos.fetch_sub(waited.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// Compares with the last adjustment, at most once per [`ADJUST_EVERY`]. `waited` is the total waiting time of the consumer.
    /// Returns whether the target changed.
    pub(super) fn adjust(&self, waited: Duration) -> bool {
        let PoolSize::Auto(share) = &self.size else { return false };
        // One thread adjusts for all.
        let Some(mut last) = self.last.try_lock() else { return false };
        if last.at.elapsed() < ADJUST_EVERY {
            return false;
        }
        self.compare(&mut last, waited, self.on.read().waited, share.cores())
    }

    fn compare(&self, last: &mut UsageReading, waited: Duration, core_wait: Duration, cores: usize) -> bool {
        let nanos = |counter: &AtomicU64| Duration::from_nanos(counter.load(Ordering::Relaxed));
        let (busy, cpu) = (nanos(&self.busy_nanos), nanos(&self.cpu_nanos));
        let mut now = UsageReading {
            cores,
            at: Instant::now(),
            busy,
            cpu,
            core_wait,
            process: process_cpu_time(),
            waited,
            idle_rounds: 0,
        };
        let passed = now.at - last.at;
        let part = |time: Duration, of: Duration| time.as_secs_f64() / of.as_secs_f64().max(f64::MIN_POSITIVE);
        let target = self.target();
        let busy = now.busy.saturating_sub(last.busy);
        // Share of the threads' time that they spent in tasks. Tasks that began before the interval may push it above 1.
        let busy_share = part(busy, passed * target as u32).min(1.0);
        // Waits for a core between tasks are not part of the tasks.
        let core_wait = now.core_wait.saturating_sub(last.core_wait).mul_f64(busy_share);
        self.core_wait_nanos.fetch_add(core_wait.as_nanos() as u64, Ordering::Relaxed);
        let is_awaited = part(now.waited.saturating_sub(last.waited), passed) > WAITS;
        let is_computing = part(now.cpu.saturating_sub(last.cpu) + core_wait, busy) > COMPUTES;
        let has_cores = part(now.process.saturating_sub(last.process), passed * cores as u32) < ALL_CORES;
        let is_idle = busy_share < 1.0 - IDLE;
        now.idle_rounds = if is_idle && !is_awaited { last.idle_rounds + 1 } else { 0 };
        let most = cores * MAX_PER_CORE;
        let next = if cores != last.cores {
            // Other loaders started or stopped iterating. Keep the number of threads per core.
            (target * cores).div_ceil(last.cores).clamp(1, most)
        } else if is_awaited && !is_computing && has_cores && !is_idle {
            // Grow by a quarter, at least by one thread, so that a few adjustments reach the right number.
            (target + target.div_ceil(4)).min(most)
        } else if now.idle_rounds >= PATIENCE {
            now.idle_rounds = 0;
            (target - 1).max(1)
        } else {
            target
        };
        *last = now;
        self.target.store(next, Ordering::Relaxed);
        next != target
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker_pool(cores: usize) -> WorkerPool {
        WorkerPool::of(cores, PoolSize::Auto(Arc::default()))
    }

    /// A second in which each thread was busy for `busy`, computed for `cpu`, and the consumer waited for `waited`.
    fn second(worker_pool: &WorkerPool, [busy, cpu, waited]: [f64; 3]) {
        busy_second(worker_pool, [busy, cpu, waited, 0.0]);
    }

    /// The same on a machine where each thread waited so long for a core.
    fn busy_second(worker_pool: &WorkerPool, [busy, cpu, waited, core_wait]: [f64; 4]) {
        let nanos = |part: f64| (part * 1e9) as u64 * worker_pool.target() as u64;
        worker_pool.busy_nanos.fetch_add(nanos(busy), Ordering::Relaxed);
        worker_pool.cpu_nanos.fetch_add(nanos(cpu), Ordering::Relaxed);
        let mut last = worker_pool.last.lock();
        last.at = Instant::now().checked_sub(Duration::from_secs(1)).expect("the machine runs for a second");
        let waited = last.waited + Duration::from_secs_f64(waited);
        let core_wait = last.core_wait + Duration::from_nanos(nanos(core_wait));
        let cores = last.cores;
        worker_pool.compare(&mut last, waited, core_wait, cores);
    }

    #[test]
    fn threads_that_wait_get_company_as_long_as_the_consumer_waits() {
        let worker_pool = worker_pool(2);
        second(&worker_pool, [1.0, 0.01, 0.5]);
        assert_eq!(worker_pool.target(), 3);
        (0..20).for_each(|_| second(&worker_pool, [1.0, 0.01, 0.5]));
        assert_eq!(worker_pool.target(), 16, "no more than eight for each core");
        (0..5).for_each(|_| second(&worker_pool, [0.9, 0.01, 0.0]));
        assert_eq!(worker_pool.target(), 16, "all are needed");
    }

    #[test]
    fn threads_that_compute_stay_as_many_as_there_are_cores() {
        let worker_pool = worker_pool(2);
        (0..5).for_each(|_| second(&worker_pool, [1.0, 0.98, 0.9]));
        assert_eq!(worker_pool.target(), 2);
    }

    #[test]
    fn threads_that_wait_for_cores_of_a_busy_machine_get_no_company() {
        let worker_pool = worker_pool(2);
        (0..5).for_each(|_| busy_second(&worker_pool, [1.0, 0.3, 0.9, 0.65]));
        assert_eq!(worker_pool.target(), 2);
        assert!((worker_pool.computing() - 0.95).abs() < 0.01, "{}", worker_pool.computing());
        (0..5).for_each(|_| busy_second(&worker_pool, [0.2, 0.02, 0.0, 0.5]));
        assert!(worker_pool.computing() < 0.9, "who is idle waits for cores, too: {}", worker_pool.computing());
    }

    #[test]
    fn idle_threads_end_one_by_one_down_to_one() {
        let worker_pool = worker_pool(2);
        (0..PATIENCE - 1).for_each(|_| second(&worker_pool, [0.1, 0.1, 0.0]));
        assert_eq!(worker_pool.target(), 2);
        (0..50).for_each(|_| second(&worker_pool, [0.1, 0.1, 0.0]));
        assert_eq!(worker_pool.target(), 1);
    }

    #[test]
    fn a_number_that_was_asked_for_stays() {
        let worker_pool = WorkerPool::new(Workers::Count(3), Arc::default());
        worker_pool.last.lock().at = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        assert!(!worker_pool.adjust(Duration::from_secs(1)));
        assert_eq!(worker_pool.target(), 3);
    }
}
