//! Estimates how many cores the threads of a job get.
//!
//! In: the time of threads per sample, the CPU time in it, and the time they waited for a core. Out: a number of cores: all of them
//! on an idle machine, fewer beside other processes.
//!
//! Threads of the job also wait for each other. That wait is modelled as the mean waiting time of an M/M/c queue (Erlang C),
//! limited by that of threads that always compute. Any longer wait is due to other processes.

/// Milliseconds of a thread for a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadTime {
    /// Total.
    pub all: f64,
    /// CPU time.
    pub cpu: f64,
    /// Time waiting for a core.
    pub core_wait: f64,
}

impl ThreadTime {
    /// If the system does not report waits for a core: threads wait only for each other.
    pub(super) fn modelled(all: f64, ops_cpu: f64, workers: usize, cores: usize) -> Self {
        let silent = Self { all, cpu: ops_cpu, core_wait: 0.0 };
        // The wait is part of the time without CPU, so it cannot be longer.
        let core_wait = silent.waits_for_each_other(workers, cores).min((all - ops_cpu).max(0.0));
        Self { core_wait, ..silent }
    }

    /// The number of cores that `workers` threads got, out of `cores`.
    pub(super) fn free_cores(&self, workers: usize, cores: usize) -> f64 {
        // The rest of the wait is due to other processes: they take the core for that long per unit of our CPU time.
        let for_others = (self.core_wait - self.waits_for_each_other(workers, cores)).max(0.0);
        let share = if self.cpu > 0.0 { self.cpu / (self.cpu + for_others) } else { 1.0 };
        let cores = cores.max(1) as f64;
        // They got at least what they used.
        (cores * share).max(self.used(workers).min(cores))
    }

    /// The number of cores that the threads used.
    fn used(&self, workers: usize) -> f64 {
        workers as f64 * self.cpu / self.all.max(self.cpu).max(f64::MIN_POSITIVE)
    }

    fn waits_for_each_other(&self, workers: usize, cores: usize) -> f64 {
        let cores = cores.max(1);
        // If all threads always compute, each of them waits (workers / cores - 1) times its own CPU time.
        let most = (workers as f64 / cores as f64 - 1.0).max(0.0);
        self.cpu * erlang_c_wait(self.used(workers), cores).min(most)
    }
}

/// Mean waiting time of an M/M/c queue (Erlang C) in units of the service time, with `busy` of `servers` in use on average.
fn erlang_c_wait(busy: f64, servers: usize) -> f64 {
    let free = servers as f64 - busy;
    if free <= 0.0 {
        return f64::INFINITY;
    }
    // Erlang B by its recurrence: B(0) = 1, B(n) = a B(n-1) / (n + a B(n-1)).
    let lost = (1..=servers).fold(1.0, |lost, server| busy * lost / (server as f64 + busy * lost));
    // Erlang C from Erlang B: the probability that an arrival has to wait.
    let has_to_wait = lost / (1.0 - busy / servers as f64 * (1.0 - lost));
    // Mean wait over all arrivals, in units of the service time: C / (servers - busy).
    has_to_wait / free
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
        check(8, [1.0, 0.15, 9.0], 2.0);
        check(2, [0.0, 0.0, 9.0], 2.0);
    }

    #[test]
    fn what_other_processes_use_is_not_theirs() {
        // Each beside two processes that do nothing but compute, all with equal shares of two cores.
        check(1, [4.0, 2.0, 0.0], 4.0 / 3.0);
        check(2, [5.0, 5.0, 0.0], 1.0);
        check(4, [5.0, 10.0, 0.0], 4.0 / 3.0);
        let mostly_waits = ThreadTime { all: 12.0, cpu: 1.0, core_wait: 2.0 }.free_cores(8, 2);
        assert!((0.66..0.75).contains(&mostly_waits), "{mostly_waits}");
    }

    #[test]
    fn who_comes_at_random_waits_as_erlang_says() {
        let is_about = |waits: f64, expected: f64| assert!((waits - expected).abs() < 1e-6, "{waits}, not {expected}");
        is_about(erlang_c_wait(0.5, 1), 1.0);
        is_about(erlang_c_wait(1.0, 2), 1.0 / 3.0);
        is_about(erlang_c_wait(0.0, 4), 0.0);
        assert!(erlang_c_wait(2.0, 2).is_infinite());
    }

    #[test]
    fn where_the_system_says_nothing_threads_that_compute_wait_for_each_other() {
        for (all, ops_cpu) in [(10.0, 2.0), (8.0, 2.0), (10.5, 0.5), (2.0, 2.0)] {
            let silent = ThreadTime::modelled(all, ops_cpu, 8, 2);
            assert!(silent.core_wait <= all - ops_cpu, "no more than there is: {silent:?}");
            let free = silent.free_cores(8, 2);
            assert!((free - 2.0).abs() < 1e-9, "nobody else is known of: {free}");
        }
    }
}
