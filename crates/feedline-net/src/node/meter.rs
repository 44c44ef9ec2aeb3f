//! The counters of one job at a node.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use feedline_engine::carousel::Provenance;
use feedline_engine::metrics::{Phase, StallMeter};
use feedline_memory::Mutex;
use feedline_order::Epoch;

use super::stats::{JobStats, key_text};

/// What is counted of a job.
#[derive(Debug)]
pub(super) struct JobMeter {
    process: u32,
    key: u128,
    since: Instant,
    epoch: AtomicU64,
    segments: AtomicU64,
    samples: AtomicU64,
    /// When it started to wait for a segment. Locked while a wait is recorded, so that a reader counts it exactly once.
    waiting: Mutex<Option<Instant>>,
    stalls: StallMeter,
}

/// Whether a segment is a job's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nth {
    /// The first since the job started or jumped.
    First,
    /// A later one.
    Later,
}

impl JobMeter {
    /// A job of a process. Jobs with the same key share samples.
    pub(super) fn new(process: u32, key: u128) -> Self {
        let zero = || AtomicU64::new(0);
        let (epoch, segments, samples) = (zero(), zero(), zero());
        let (waiting, stalls) = (Mutex::default(), StallMeter::default());
        Self { process, key, since: Instant::now(), epoch, segments, samples, waiting, stalls }
    }

    /// Records that it requests a segment.
    pub(super) fn begin_wait(&self) {
        self.waiting.lock().get_or_insert_with(Instant::now);
    }

    /// Records that it got one. Returns the causes of its wait.
    pub(super) fn end_wait(&self, nth: Nth, provenance: Provenance) -> Vec<(Phase, Duration)> {
        // The lock is kept until the wait is in `stalls`. A reader in between would count this wait twice or not at all.
        let mut waiting = self.waiting.lock();
        let Some(since) = waiting.take() else { return Vec::new() };
        let causes = match nth {
            Nth::First => vec![(Phase::Start, since.elapsed())],
            Nth::Later => provenance.causes(since, Instant::now()).to_vec(),
        };
        for &(cause, waited) in &causes {
            self.stalls.add(cause, waited);
        }
        causes
    }

    /// Records what was sent to it.
    pub(super) fn add_segment(&self, epoch: Epoch, samples: u64) {
        self.epoch.store(epoch.0, Ordering::Relaxed);
        self.segments.fetch_add(1, Ordering::Relaxed);
        self.samples.fetch_add(samples, Ordering::Relaxed);
    }

    /// Its metrics, with its number at the node.
    pub(super) fn stats(&self, job: u64) -> JobStats {
        let waiting = self.waiting.lock();
        let under_way = waiting.map_or(Duration::ZERO, |since| since.elapsed());
        let (waited, stall_seconds) = (self.stalls.total() + under_way, self.stalls.seconds());
        // Read under the lock: a wait is either still under way or already in the sums.
        drop(waiting);
        JobStats {
            job,
            process: self.process,
            key: key_text(self.key),
            attached_seconds: self.since.elapsed().as_secs_f64(),
            epoch: self.epoch.load(Ordering::Relaxed),
            segments: self.segments.load(Ordering::Relaxed),
            samples: self.samples.load(Ordering::Relaxed),
            waited_seconds: waited.as_secs_f64(),
            stall_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_waiting_has_a_cause_once_it_is_over_and_counts_before() {
        let meter = JobMeter::new(1, 2);
        let provenance = Provenance { requested: Instant::now(), phase: Phase::Read };
        for (nth, cause) in [(Nth::First, "start"), (Nth::Later, "read")] {
            meter.begin_wait();
            let before = meter.stats(3);
            while meter.stats(3).waited_seconds <= before.waited_seconds {}
            assert!(meter.stats(3).stall_seconds[cause] <= 0.0, "its cause is not known yet");
            meter.end_wait(nth, provenance);
            let after = meter.stats(3);
            assert!(after.stall_seconds[cause] > 0.0);
            let all: f64 = after.stall_seconds.values().sum();
            assert!((all - after.waited_seconds).abs() < 1e-6);
        }
        assert!(meter.end_wait(Nth::Later, provenance).is_empty(), "nobody waited");
    }
}
