//! The number of preparer threads, if the plan leaves it open.
//!
//! In: how long the consumer waited, how busy the threads were, and how much of that time they computed. Out: a number of threads.
//! The number starts at one thread per core that the run may use. Threads that block on storage leave cores idle, so more threads
//! help while the consumer waits. If the consumer never waits and threads are idle, the number shrinks.
//!
//! Always true: the number lies between 1 and [`MAX_PER_CORE`] per core of this run's share. It does not change any byte of the
//! stream. A number that the user set stays.

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
/// If threads compute or wait for a core for at most this fraction of their tasks, they are blocked on something else.
const COMPUTES: f64 = 0.7;
/// The process counts as using all cores of this run's share from this fraction on.
const ALL_CORES: f64 = 0.8;
/// Threads count as idle above this fraction of the time.
const IDLE: f64 = 0.5;
/// Consecutive adjustments with idle threads before one thread ends.
const PATIENCE: u32 = 8;

/// Counts the threads of a run and decides how many there should be.
#[derive(Debug)]
pub(super) struct WorkerPool {
    /// Number of threads that there should be.
    target: AtomicUsize,
    size: PoolSize,
    /// Time that threads spent in tasks, without waits for memory.
    busy_nanos: AtomicU64,
    /// The CPU time of these tasks.
    cpu_nanos: AtomicU64,
    /// The time within these tasks in which threads waited for a core. An estimate, updated by `adjust`.
    core_wait_nanos: AtomicU64,
    /// Measures how long the threads ran on a core or waited for one, in and between tasks.
    pub on: CoreMeter,
    /// The counters at the last adjustment.
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

/// Counters at one adjustment. All durations are totals since the start.
#[derive(Debug)]
struct UsageReading {
    /// Cores that the run may use beside the other runs of the machine.
    cores: usize,
    at: Instant,
    /// Time of all threads in tasks.
    busy: Duration,
    /// CPU time of all threads in tasks.
    cpu: Duration,
    /// Time in which threads waited for a core, in and between tasks.
    core_wait: Duration,
    /// CPU time of the whole process.
    process: Duration,
    /// Time in which the consumer waited for batches.
    waited: Duration,
    /// Number of consecutive adjustments with idle threads, up to this one.
    idle_rounds: u32,
}

impl WorkerPool {
    pub(super) fn new(workers: Workers, share: Arc<MachineShare>) -> Self {
        let count = workers.resolve(&share);
        Self::of(count, if workers == Workers::Auto { PoolSize::Auto(share) } else { PoolSize::Requested })
    }

    /// A pool that starts with `threads` threads. If it adjusts itself, that is also the number of cores.
    fn of(threads: usize, size: PoolSize) -> Self {
        let [busy_nanos, cpu_nanos, core_wait_nanos] = [const { AtomicU64::new(0) }; 3];
        let zero = Duration::ZERO;
        let at = Instant::now();
        let last = UsageReading {
            cores: threads,
            at,
            busy: zero,
            cpu: zero,
            core_wait: zero,
            process: process_cpu_time(),
            waited: zero,
            idle_rounds: 0,
        };
        let (on, last) = (CoreMeter::default(), Mutex::new(last));
        Self { target: AtomicUsize::new(threads), size, busy_nanos, cpu_nanos, core_wait_nanos, on, last }
    }

    /// The target number of threads.
    pub(super) fn target(&self) -> usize {
        // Relaxed: `RunShared::adjust_worker_count` takes the run's lock after a change, so that waiting threads see it.
        self.target.load(Ordering::Relaxed)
    }

    /// Runs a task. Measures its time and CPU time if the pool adjusts itself.
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

    /// The fraction of their tasks in which threads computed or waited for a core. 1 if nothing was measured.
    pub(super) fn computing(&self) -> f64 {
        let nanos = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let busy = nanos(&self.busy_nanos);
        if busy > 0.0 { ((nanos(&self.cpu_nanos) + nanos(&self.core_wait_nanos)) / busy).min(1.0) } else { 1.0 }
    }

    /// Excludes time in which a thread waited for memory: more threads would wait too.
    pub(super) fn leave_out(&self, waited: Duration) {
        // Cannot underflow: the wait was part of a task whose whole time `time` has just added.
        if matches!(self.size, PoolSize::Auto(_)) {
            self.busy_nanos.fetch_sub(waited.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// Compares with the last adjustment, at most once per [`ADJUST_EVERY`]. `waited` is the total waiting time of the consumer.
    /// Returns whether the target changed.
    pub(super) fn adjust(&self, waited: Duration) -> bool {
        let PoolSize::Auto(share) = &self.size else { return false };
        // One consumer thread adjusts for all. The others do not wait for it.
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
        // `MIN_POSITIVE` avoids 0 / 0: no time out of no time is 0.
        let part = |time: Duration, of: Duration| time.as_secs_f64() / of.as_secs_f64().max(f64::MIN_POSITIVE);
        let target = self.target();
        let busy = now.busy.saturating_sub(last.busy);
        // The share of the threads' time that they spent in tasks. It may exceed 1, because a task is counted when it ends, with
        // the time before this interval.
        let busy_share = part(busy, passed * target as u32).min(1.0);
        // The kernel counts waits for a core in and between tasks. If they are evenly spread, this share of them lies in tasks.
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
            // Threads are blocked and cores are free. Grow by a quarter, at least by one thread, so that a few adjustments suffice.
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

    /// The same on a busy machine, where each thread also waited for a core for `core_wait`.
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
    fn blocked_threads_get_more_threads_while_the_consumer_waits() {
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
    fn threads_that_wait_for_cores_of_a_busy_machine_get_no_more_threads() {
        let worker_pool = worker_pool(2);
        (0..5).for_each(|_| busy_second(&worker_pool, [1.0, 0.3, 0.9, 0.65]));
        assert_eq!(worker_pool.target(), 2);
        assert!((worker_pool.computing() - 0.95).abs() < 0.01, "{}", worker_pool.computing());
        (0..5).for_each(|_| busy_second(&worker_pool, [0.2, 0.02, 0.0, 0.5]));
        assert!(
            worker_pool.computing() < 0.9,
            "waits for cores between tasks do not count: {}",
            worker_pool.computing()
        );
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
    fn a_number_that_the_user_set_stays() {
        let worker_pool = WorkerPool::new(Workers::Count(3), Arc::default());
        worker_pool.last.lock().at = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        assert!(!worker_pool.adjust(Duration::from_secs(1)));
        assert_eq!(worker_pool.target(), 3);
    }
}
