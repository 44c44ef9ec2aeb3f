//! Measures the time in which at least one consumer waits.

use std::time::{Duration, Instant};

/// A clock that runs while at least one consumer waits.
#[derive(Debug, Default)]
pub(super) struct Stall {
    waiting: usize,
    since: Option<Instant>,
    waited: Duration,
}

impl Stall {
    /// A consumer starts to wait.
    pub(super) fn begin(&mut self, now: Instant) {
        self.waiting += 1;
        self.since.get_or_insert(now);
    }

    /// Whether a consumer waits.
    pub(super) fn is_running(&self) -> bool {
        self.waiting > 0
    }

    /// A consumer stops waiting.
    pub(super) fn end(&mut self, now: Instant) {
        self.record(now);
        self.waiting -= 1;
        if self.waiting == 0 {
            self.since = None;
        }
    }

    /// Returns the time since the last call, and starts again from zero.
    pub(super) fn take(&mut self, now: Instant) -> Duration {
        self.record(now);
        std::mem::take(&mut self.waited)
    }

    fn record(&mut self, now: Instant) {
        // Move the waited time into the total and restart the clock, so that no time counts twice.
        if let Some(since) = self.since.replace(now).filter(|_| self.waiting > 0) {
            self.waited += now - since;
        }
        if self.waiting == 0 {
            self.since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_several_wait_counts_once() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut stall = Stall::default();
        stall.begin(at(0));
        stall.begin(at(1));
        assert_eq!(stall.take(at(3)), Duration::from_secs(3));
        stall.end(at(4));
        stall.end(at(6));
        assert_eq!(stall.take(at(10)), Duration::from_secs(3));
        stall.begin(at(11));
        assert_eq!(stall.take(at(12)), Duration::from_secs(1));
    }
}
