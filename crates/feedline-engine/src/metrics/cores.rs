//! Measures how long threads ran on a core, and how long they waited for a free one.
//!
//! The kernel keeps these times. They are read only on demand, so threads spend nothing on them.

use std::fs;
use std::iter::Sum;
use std::ops::Add;
use std::path::{Path, PathBuf};
use std::time::Duration;

use feedline_memory::Mutex;

/// Times of threads. Zero if the system does not provide them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreTime {
    /// On a core.
    pub ran: Duration,
    /// Runnable, but without a core.
    pub waited: Duration,
}

/// A group of threads, each counted from when it enters until it ends.
#[derive(Debug, Default)]
pub struct CoreMeter(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The kernel's schedule files of running threads.
    running: Vec<PathBuf>,
    ended: CoreTime,
}

/// Counts its thread until it is dropped.
#[derive(Debug)]
pub struct OnCores<'a> {
    cores: &'a CoreMeter,
    schedule: Option<PathBuf>,
}

impl CoreMeter {
    /// Adds this thread to the group.
    pub fn enter(&self) -> OnCores<'_> {
        // The link names this thread's own folder, which other threads can read too.
        let own = fs::read_link("/proc/thread-self").ok();
        let schedule = own.map(|own| Path::new("/proc").join(own).join("schedstat"));
        self.0.lock().running.extend(schedule.clone());
        OnCores { cores: self, schedule }
    }

    /// The total of all threads so far.
    pub fn read(&self) -> CoreTime {
        // The lock keeps threads from ending meanwhile.
        let known = self.0.lock();
        known.ended + known.running.iter().map(|schedule| CoreTime::of(schedule)).sum()
    }
}

impl Drop for OnCores<'_> {
    fn drop(&mut self) {
        let Some(schedule) = &self.schedule else { return };
        let mut known = self.cores.0.lock();
        // Moved from `running` to `ended` under one lock, so a reader counts the thread exactly once.
        known.running.retain(|other| other != schedule);
        known.ended = known.ended + CoreTime::of(schedule);
    }
}

impl CoreTime {
    /// The times of one thread.
    fn of(schedule: &Path) -> Self {
        let told = fs::read_to_string(schedule).unwrap_or_default();
        // A third number, the count of time slices, follows.
        let mut nanos = told.split_ascii_whitespace().map(|nanos| nanos.parse().unwrap_or_default());
        let mut next = || Duration::from_nanos(nanos.next().unwrap_or_default());
        Self { ran: next(), waited: next() }
    }
}

impl Add for CoreTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { ran: self.ran + other.ran, waited: self.waited + other.waited }
    }
}

impl Sum for CoreTime {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        times.fold(Self::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;
    use std::time::Instant;

    use super::*;
    use feedline_data::cpu_time::thread_cpu_time;

    const WORK: Duration = Duration::from_millis(50);

    fn compute() {
        let end = thread_cpu_time() + WORK;
        while thread_cpu_time() < end {}
    }

    #[test]
    fn threads_that_share_a_core_wait_for_it_and_those_that_sleep_do_not() {
        let count = 4 * thread::available_parallelism().unwrap().get() as u32;
        let (cores, all_are_on) = (CoreMeter::default(), Barrier::new(count as usize));
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| {
                    let _on_cores = cores.enter();
                    all_are_on.wait();
                    compute();
                });
            }
        });
        let (before, most) = (cores.read(), began.elapsed() * count);
        assert!(before.ran >= WORK * count && before.waited > WORK * count / 4, "{before:?}");
        assert!(before.ran + before.waited < most, "{before:?} of {most:?}");
        let began = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _on_cores = cores.enter();
                thread::sleep(WORK);
            });
        });
        let more = cores.read().waited.checked_sub(before.waited).unwrap();
        assert!(more < began.elapsed().checked_sub(WORK).unwrap(), "sleep is no wait for a core: {more:?}");
        assert!(cores.0.lock().running.is_empty(), "nobody runs");
    }

    #[test]
    fn what_runs_counts_before_it_ends() {
        let cores = CoreMeter::default();
        let _on_cores = cores.enter();
        let before = cores.read();
        compute();
        assert!(cores.read().ran > before.ran + WORK / 2);
    }
}
