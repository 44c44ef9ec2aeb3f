//! What preparer threads did when they did not prepare: they had nothing to do, or waited for memory or for a core.
//!
//! The first two are booked by the threads. How long a thread could have run and no core was free is known to the system alone:
//! it is asked when somebody wants to know, so that threads spend nothing on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Counter;

/// The waits of the threads of a run.
#[derive(Debug, Default)]
pub struct ThreadMeter {
    idle: Counter,
    memory: Counter,
    /// Core waits of threads that have ended.
    ended: Counter,
    /// What the system says of those that run.
    running: Mutex<Vec<PathBuf>>,
}

/// What threads waited for, since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadWaits {
    /// Something to do.
    pub idle: Duration,
    /// Memory.
    pub memory: Duration,
    /// A core.
    pub core: Duration,
}

/// A thread whose waits for cores count, until this is dropped.
#[derive(Debug)]
pub struct OnCores<'a> {
    meter: &'a ThreadMeter,
    schedule: Option<PathBuf>,
}

impl ThreadMeter {
    /// Counts the waits for cores of this thread.
    pub fn enter(&self) -> OnCores<'_> {
        let schedule =
            fs::read_link("/proc/thread-self").ok().map(|own| Path::new("/proc").join(own).join("schedstat"));
        self.running().extend(schedule.clone());
        OnCores { meter: self, schedule }
    }

    /// Books time in which a thread had nothing to do.
    pub fn add_idle(&self, idle: Duration) {
        self.idle.add_time(idle);
    }

    /// Books time in which a thread waited for memory.
    pub fn add_memory(&self, waited: Duration) {
        self.memory.add_time(waited);
    }

    /// What was waited for so far.
    pub fn read(&self) -> ThreadWaits {
        ThreadWaits { idle: self.idle.time(), memory: self.memory.time(), core: self.core_wait() }
    }

    /// How long threads could have run and no core was free.
    pub fn core_wait(&self) -> Duration {
        // None of them ends meanwhile.
        let running = self.running();
        self.ended.time() + running.iter().map(|schedule| waited(schedule)).sum::<Duration>()
    }

    fn running(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OnCores<'_> {
    fn drop(&mut self) {
        let Some(schedule) = &self.schedule else { return };
        let mut running = self.meter.running();
        running.retain(|other| other != schedule);
        self.meter.ended.add_time(waited(schedule));
    }
}

/// How long a thread waited for a core so far; no time where the system does not say.
fn waited(schedule: &Path) -> Duration {
    let told = fs::read_to_string(schedule).unwrap_or_default();
    // Time on a core, time in the queue for one, how often it got one.
    let nanos = told.split_ascii_whitespace().nth(1).and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;
    use std::time::Instant;

    use super::*;
    use crate::metrics::thread_cpu_time;

    const WORK: Duration = Duration::from_millis(50);

    fn compute() {
        let end = thread_cpu_time() + WORK;
        while thread_cpu_time() < end {}
    }

    #[test]
    fn threads_that_share_a_core_wait_for_it_and_those_that_sleep_do_not() {
        let cores = thread::available_parallelism().unwrap().get();
        let (meter, all_are_on) = (ThreadMeter::default(), Barrier::new(4 * cores));
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..4 * cores {
                scope.spawn(|| {
                    let _on_cores = meter.enter();
                    all_are_on.wait();
                    compute();
                });
            }
        });
        let waited = meter.core_wait();
        let most = began.elapsed() * 4 * cores as u32;
        assert!(waited > WORK * cores as u32 && waited < most, "{waited:?} of {most:?}");
        let began = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _on_cores = meter.enter();
                thread::sleep(WORK);
            });
        });
        let (more, most) = (meter.core_wait().checked_sub(waited).unwrap(), began.elapsed().checked_sub(WORK).unwrap());
        assert!(more < most, "sleep is no wait for a core: {more:?} of {most:?}");
        assert!(meter.running().is_empty(), "nobody runs");
    }

    #[test]
    fn what_runs_counts_before_it_ends() {
        let meter = ThreadMeter::default();
        let _on_cores = meter.enter();
        let (before, began) = (meter.core_wait(), Instant::now());
        while meter.core_wait() == before && began.elapsed() < Duration::from_mins(1) {
            thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(compute))));
            compute();
        }
        assert!(meter.core_wait() > before, "this thread had to wait, too");
    }
}
