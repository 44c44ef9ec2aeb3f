//! How many cores the threads of a job get.
//!
//! In: what threads took for a sample, how much of that they computed, and how long they waited for a core. Out: cores, as many as
//! there are on a machine that has nothing else to do, fewer beside other processes.

/// Milliseconds of a thread for a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadTime {
    /// All.
    pub all: f64,
    /// In which it computed.
    pub cpu: f64,
    /// In which it could have, but no core was free.
    pub core_wait: f64,
}

impl ThreadTime {
    /// The cores that so many threads got of all `cores`.
    pub fn free_cores(&self, workers: usize, cores: usize) -> f64 {
        let (workers, cores) = (workers as f64, cores.max(1) as f64);
        // Threads that compute at once, more than there are cores, wait for each other.
        let for_each_other = self.cpu * (workers / cores - 1.0).max(0.0);
        let for_others = (self.core_wait - for_each_other).max(0.0);
        let share = if self.cpu > 0.0 { self.cpu / (self.cpu + for_others) } else { 1.0 };
        // What they used they got.
        let used = workers * self.cpu / self.all.max(f64::MIN_POSITIVE);
        (cores * share).max(used.min(cores))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(workers: usize, [cpu, core_wait, other]: [f64; 3], expected: f64) {
        let free = ThreadTime { all: cpu + core_wait + other, cpu, core_wait }.free_cores(workers, 2);
        assert!((free - expected).abs() < 1e-9, "{free}, not {expected}");
    }

    #[test]
    fn threads_that_wait_for_nobody_or_for_each_other_have_all_cores() {
        check(2, [5.0, 0.0, 0.0], 2.0);
        check(2, [1.0, 0.0, 9.0], 2.0);
        check(4, [5.0, 5.0, 0.0], 2.0);
        check(8, [1.0, 0.2, 9.0], 2.0);
        check(2, [0.0, 0.0, 9.0], 2.0);
    }

    #[test]
    fn what_other_processes_use_is_not_theirs() {
        // Each beside two processes that do nothing but compute, all with equal shares of two cores.
        check(1, [4.0, 2.0, 0.0], 4.0 / 3.0);
        check(2, [5.0, 5.0, 0.0], 1.0);
        check(4, [5.0, 10.0, 0.0], 4.0 / 3.0);
    }
}
