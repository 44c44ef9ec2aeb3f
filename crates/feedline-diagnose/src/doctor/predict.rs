//! Predicts the speed of a job: the minimum over all resources.
//!
//! In: the parts of a job. Out: what a sample needs of each resource. What-if questions change the parts.

use feedline_data::cost::Times;

use super::core_share::CoreShare;
use super::parts::{OpPart, Parts};

/// If threads wait for cores for more than this fraction of their computing time, wall time misleads.
const CONTENDED: f64 = 0.2;

impl Parts {
    /// Milliseconds that a thread waits for the bytes of a sample.
    pub(crate) fn read_ms(&self) -> f64 {
        if self.reads_ahead { 0.0 } else { self.read_alone_samples_per_second.map_or(0.0, |rate| 1e3 / rate) }
    }

    /// Milliseconds of the Python interpreter per sample.
    pub fn python_ms(&self) -> f64 {
        self.ops.iter().filter(|op| op.is_foreign).map(|op| op.cpu_ms).sum()
    }

    /// The fraction of the threads' time in ops of another language.
    pub(crate) fn foreign_share(&self) -> f64 {
        let all: f64 = self.ops.iter().map(|op| op.ms).sum();
        let foreign: f64 = self.ops.iter().filter(|op| op.is_foreign).map(|op| op.ms).sum();
        if all > 0.0 { foreign / all } else { 0.0 }
    }

    /// Milliseconds that a thread waited for something other than a core.
    fn waits_ms(&self) -> f64 {
        (self.prepare_ms - self.prepare_cpu_ms - self.core_wait_ms).max(0.0)
    }

    /// Seconds per sample on each resource.
    pub(crate) fn times(&self) -> Times {
        // The same reads limit the disk or the network, never both.
        let store = self.read_samples_per_second.map_or(0.0, |rate| 1.0 / rate.max(f64::MIN_POSITIVE));
        let (read, network) = if self.is_remote { (0.0, store) } else { (store, 0.0) };
        Times {
            step: self.step_ms / 1e3 / self.batch_size.max(f64::MIN_POSITIVE),
            prepare: (self.prepare_ms + self.read_ms()) / 1e3 / self.num_workers.max(1) as f64,
            cores: self.prepare_cpu_ms / 1e3 / self.free_cores.max(f64::MIN_POSITIVE),
            python: self.python_ms() / 1e3,
            read,
            network,
            storage: 0.0,
        }
    }

    /// Whether threads waited so long for cores that wall time says little.
    pub fn is_contended(&self) -> bool {
        self.core_wait_ms > CONTENDED * self.prepare_cpu_ms
    }

    /// With another share of the cores: threads wait longer or shorter for cores, and compute as long as before.
    #[must_use]
    pub(crate) fn at_core_share(&self, share: f64) -> Self {
        let (mean, share) = (self.core_share.mean.max(f64::MIN_POSITIVE), share.max(f64::MIN_POSITIVE));
        // Windows without waiting are unknown, so the total is scaled.
        // Time on or waiting for a core is inversely proportional to the share: cpu / share.
        let core_wait_ms = ((self.prepare_cpu_ms + self.core_wait_ms) * mean / share - self.prepare_cpu_ms).max(0.0);
        let more_ms = core_wait_ms - self.core_wait_ms;
        let prepare_ms = self.prepare_ms + more_ms;
        // Each op gets its part of the wait, in proportion to its computing time.
        let part = |op: &OpPart| more_ms * op.cpu_ms / self.prepare_cpu_ms.max(f64::MIN_POSITIVE);
        let ops = self.ops.iter().map(|op| OpPart { ms: (op.ms + part(op)).max(op.cpu_ms), ..op.clone() }).collect();
        Self {
            ops,
            core_share: CoreShare { mean: share, ..self.core_share },
            free_cores: (self.free_cores * share / mean).min(self.cores.max(1) as f64),
            prepare_ms,
            prepare_samples_per_second: 1e3 * self.num_workers as f64 / prepare_ms.max(1e-6),
            core_wait_ms,
            ..self.clone()
        }
    }

    /// The range of samples per second, by the share of cores.
    pub(crate) fn predicted_range(&self) -> [f64; 2] {
        if !self.core_share.varies() {
            return [self.times().samples_per_second(); 2];
        }
        let CoreShare { low, high, .. } = self.core_share;
        [low, high].map(|share| self.at_core_share(share).times().samples_per_second())
    }

    /// The relative error that the share of cores may cause. 0.5 means by half. A job that waits for other things depends little on
    /// it.
    pub(crate) fn error_band(&self) -> f64 {
        let [low, high] = self.predicted_range();
        // From the low to the high end of the range, relative to the low end.
        high / low.max(f64::MIN_POSITIVE) - 1.0
    }

    /// With samples cached after the first `cut` ops.
    #[must_use]
    pub(crate) fn with_cached(&self, cut: usize) -> Self {
        let ms = |of: fn(&OpPart) -> f64| self.ops[..cut].iter().map(of).sum::<f64>();
        // The fraction of the computing that remains. Waits for cores shrink in proportion to it.
        let left = (1.0 - ms(|op| op.cpu_ms) / self.prepare_cpu_ms.max(f64::MIN_POSITIVE)).max(0.0);
        Self {
            read_samples_per_second: None,
            read_alone_samples_per_second: None,
            prepare_ms: (self.prepare_ms - ms(|op| op.ms)).max(0.0),
            prepare_cpu_ms: left * self.prepare_cpu_ms,
            core_wait_ms: left * self.core_wait_ms,
            ops: self.ops[cut..].to_vec(),
            ..self.clone()
        }
    }

    /// With another number of threads. A thread's time beyond computing is waiting, which other threads may use.
    #[must_use]
    pub(crate) fn with_workers(&self, num_workers: usize) -> Self {
        // With n threads, an op in Python waits for the interpreter lock of the n-1 others. This wait is removed here. The resource
        // `python` limits the speed instead.
        let for_python = (self.python_ms() * (self.num_workers as f64 - 1.0)).min(self.waits_ms()).max(0.0);
        // Other processes keep using what they use.
        let core_wait_ms = self.prepare_cpu_ms * (self.cores as f64 / self.free_cores - 1.0).max(0.0);
        // Computing, waiting for cores, and waiting for anything else.
        let prepare_ms = self.prepare_cpu_ms + core_wait_ms + self.waits_ms() - for_python;
        let mut changed = Self { num_workers, prepare_ms, core_wait_ms, ..self.clone() };
        if let Some(alone) = self.read_alone_samples_per_second {
            // Each thread reads at the speed of one, up to the limit of the store.
            let reached = self.read_samples_per_second.unwrap_or(alone);
            // If n threads read nearly n times as fast as one, the store has not reached its limit yet.
            let is_full = reached < 0.9 * alone * self.num_workers as f64;
            if !is_full {
                changed.read_samples_per_second = Some(alone * num_workers as f64);
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_data::cost::Resource;

    fn parts() -> Parts {
        let op = |ms, cpu_ms, is_foreign| OpPart { op: "Op".to_owned(), ms, cpu_ms, bytes: 10.0, is_foreign };
        Parts {
            batch_size: 10.0,
            num_workers: 2,
            cores: 4,
            free_cores: 4.0,
            step_ms: 100.0,
            is_remote: false,
            reads_ahead: false,
            read_samples_per_second: Some(400.0),
            read_alone_samples_per_second: Some(200.0),
            read_bytes: 1000.0,
            prepare_samples_per_second: 400.0,
            prepare_ms: 5.0,
            prepare_cpu_ms: 2.0,
            core_wait_ms: 0.0,
            core_share: CoreShare::default(),
            ops: vec![op(4.0, 2.0, false)],
        }
    }

    #[test]
    fn the_least_of_all_resources_decides_and_threads_wait_for_what_they_read_themselves() {
        let all = parts().times();
        assert_eq!((all.step, all.prepare, all.read, all.cores), (0.01, 0.005, 0.0025, 0.0005));
        assert_eq!((all.bound(), all.samples_per_second()), (Resource::Step, 100.0));
        let ahead = Parts { reads_ahead: true, step_ms: 0.0, ..parts() }.times();
        assert_eq!((ahead.prepare, ahead.bound()), (0.0025, Resource::Prepare));
        let remote = Parts { is_remote: true, ..parts() }.times();
        assert_eq!((remote.read, remote.network), (0.0, 0.0025));
    }

    #[test]
    fn further_threads_help_until_cores_or_the_store_can_do_no_more() {
        let with = |parts: &Parts, workers| {
            let times = parts.with_workers(workers).times();
            (times.bound(), times.samples_per_second().round())
        };
        let few = Parts { step_ms: 0.0, ..parts() };
        assert_eq!(with(&few, 4), (Resource::Prepare, 400.0));
        assert_eq!(with(&few, 400), (Resource::Cores, 2000.0));
        let full = Parts { read_samples_per_second: Some(210.0), ..few.clone() };
        assert_eq!(with(&full, 16), (Resource::Read, 210.0));
        let mut python = few;
        (python.ops[0].is_foreign, python.prepare_cpu_ms) = (true, 2.0);
        assert_eq!(with(&python, 64), (Resource::Python, 500.0), "one thread at a time");
    }

    #[test]
    fn a_share_of_cores_that_varied_gives_a_range_and_a_steady_one_a_point() {
        let (read, core_share) = (None, CoreShare { low: 0.25, mean: 0.5, high: 1.0 });
        let varied = Parts {
            step_ms: 0.0,
            cores: 2,
            free_cores: 1.0,
            read_samples_per_second: read,
            read_alone_samples_per_second: read,
            prepare_ms: 4.0,
            prepare_cpu_ms: 2.0,
            core_wait_ms: 2.0,
            core_share,
            ..parts()
        };
        let is_about = |found: [f64; 2], expected: [f64; 2]| {
            let off = found.into_iter().zip(expected).map(|(found, expected)| (found - expected).abs()).sum::<f64>();
            assert!(off < 1e-6, "{found:?}, not {expected:?}");
        };
        is_about([varied.times().samples_per_second(); 2], [500.0; 2]);
        is_about(varied.predicted_range(), [250.0, 1000.0]);
        is_about([varied.error_band(); 2], [3.0; 2]);
        let waits = Parts { prepare_ms: 104.0, ..varied.clone() };
        assert!(waits.error_band() < 0.1, "it waits for something else: {}", waits.error_band());
        assert!(varied.is_contended());
        let same = varied.at_core_share(0.5);
        is_about([same.prepare_ms, same.free_cores], [varied.prepare_ms, varied.free_cores]);
        let slower = varied.at_core_share(0.25);
        is_about([slower.prepare_ms, slower.ops[0].ms], [8.0, 8.0]);
        let steady = Parts { core_share: CoreShare::default(), ..varied };
        is_about(steady.predicted_range(), [500.0; 2]);
    }

    #[test]
    fn a_job_that_sleeps_hardly_depends_on_the_share_that_another_run_got() {
        let (cpu, core_wait) = (0.04, 0.55);
        let core_share = CoreShare::steady(cpu, core_wait).joined(CoreShare { low: 0.05, mean: 0.05, high: 0.05 });
        let sleeps = Parts { prepare_ms: 20.65, prepare_cpu_ms: cpu, core_wait_ms: core_wait, core_share, ..parts() };
        let now = sleeps.at_core_share(0.05);
        assert!((20.0..22.0).contains(&now.prepare_ms), "{}", now.prepare_ms);
        assert!(now.error_band() < 0.1, "{}", now.error_band());
    }

    #[test]
    fn cores_that_others_use_are_no_gain_of_further_threads() {
        // Two threads that compute, beside as many threads of others.
        let (cores, free_cores, read) = (2, 1.0, None);
        let busy = Parts {
            step_ms: 0.0,
            cores,
            free_cores,
            read_samples_per_second: read,
            read_alone_samples_per_second: read,
            prepare_ms: 4.0,
            prepare_cpu_ms: 2.0,
            core_wait_ms: 2.0,
            ..parts()
        };
        let reached = |workers| busy.with_workers(workers).times().samples_per_second();
        assert_eq!((busy.times().samples_per_second(), reached(2), reached(8)), (500.0, 500.0, 500.0));
        let alone = Parts { num_workers: 1, prepare_ms: 3.0, core_wait_ms: 1.0, free_cores: 4.0 / 3.0, ..busy.clone() };
        let again = alone.with_workers(1).times().samples_per_second();
        assert!((again - alone.times().samples_per_second()).abs() < 1e-6, "{again}");
        let waiting = Parts { core_wait_ms: 0.0, free_cores: 2.0, ..busy.clone() };
        let reached = waiting.with_workers(8).times();
        assert_eq!(
            (reached.bound(), reached.samples_per_second()),
            (Resource::Cores, 1000.0),
            "they wait for something else"
        );
    }
}
