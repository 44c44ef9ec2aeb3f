//! Measures how fast a job reads segments, and predicts when it will wait for the next.

use std::time::{Duration, Instant};

/// Weight of the latest segment in the moving average.
const NEWS: f64 = 0.3;

/// How fast a job reads.
#[derive(Debug, Default)]
pub(super) struct JobPace {
    leased: Option<Instant>,
    /// When it started to wait for the next segment.
    waits: Option<Instant>,
    /// Average seconds to read a segment.
    reads: f64,
}

impl JobPace {
    /// Records that the job has nothing to read. Returns whether it just started to wait.
    pub(super) fn wait(&mut self, now: Instant) -> bool {
        let is_new = self.waits.is_none();
        self.waits.get_or_insert(now);
        is_new
    }

    /// Records that the job got a segment.
    pub(super) fn lease(&mut self, now: Instant) {
        // A job that waited had finished reading when the wait began.
        let read_until = self.waits.take().unwrap_or(now);
        if let Some(leased) = self.leased.replace(now) {
            let reads = read_until.saturating_duration_since(leased).as_secs_f64();
            // Exponentially weighted moving average.
            self.reads = if self.reads > 0.0 { self.reads + NEWS * (reads - self.reads) } else { reads };
        }
    }

    /// When the job will wait for a segment that it reads after `before` others.
    pub(super) fn due(&self, before: usize, now: Instant) -> Instant {
        match (self.waits, self.leased) {
            (Some(since), _) => since + Duration::from_secs_f64(self.reads * before as f64),
            // The job still reads one segment before those `before` others.
            (None, Some(leased)) => leased + Duration::from_secs_f64(self.reads * (before + 1) as f64),
            (None, None) => now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_due_when_it_has_read_what_it_has_and_at_once_when_it_waits() {
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let mut pace = JobPace::default();
        assert_eq!(pace.due(0, at(5.0)), at(5.0), "nothing is known of it");
        pace.lease(at(0.0));
        pace.lease(at(2.0));
        assert_eq!((pace.due(0, at(2.5)), pace.due(1, at(2.5))), (at(4.0), at(6.0)));
        assert!(pace.wait(at(4.0)) && !pace.wait(at(9.0)));
        assert_eq!(pace.due(0, at(10.0)), at(4.0));
        pace.lease(at(12.0));
        assert_eq!(pace.due(0, at(12.0)), at(14.0), "time that it waited is not time that it read");
    }
}
