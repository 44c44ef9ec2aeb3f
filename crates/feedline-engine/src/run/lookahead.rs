//! How far ahead a run looks for slow samples, from the costs of samples and the pace of the consumer.
//!
//! A sample is *slow* if it takes so much longer than the others that it should start before its batch is opened. With slow samples
//! more batches are open, so the work of a few slow samples is spread over the time of many others.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use feedline_data::cost::Spread;

/// Number of intervals in the moving average of the pace. Batches may be taken in bursts.
const AVERAGED: usize = 32;
/// A longer pause counts as this many average intervals plus [`MAX_SECONDS`]. The consumer did something else, such as validation.
const MAX_INTERVALS: f64 = 16.0;
const MAX_SECONDS: f64 = 0.1;
/// Upper limit of positions to look ahead.
const MAX_POSITIONS: usize = 1 << 16;
/// Time to look ahead, and time that open batches should cover, in multiples of the slowest sample.
const LOOK_AHEAD: f64 = 6.0;
const OPEN_AHEAD: f64 = 2.0;
/// Samples faster than this are never slow: their costs differ because of other work on the machine.
const MIN_SLOW: Duration = Duration::from_millis(1);

/// Measures how fast the consumer takes batches.
#[derive(Debug, Default)]
pub(super) struct Pace {
    last: Option<Instant>,
    /// In seconds.
    intervals: VecDeque<f64>,
    interval: f64,
}

impl Pace {
    /// Records that the consumer took a batch.
    pub(super) fn record(&mut self, now: Instant) {
        if let Some(last) = self.last.replace(now) {
            // One pause must not outweigh the average: it counts as at most 16 intervals plus 0.1 s.
            let most = if self.interval > 0.0 { self.interval * MAX_INTERVALS + MAX_SECONDS } else { f64::MAX };
            self.intervals.push_back((now - last).as_secs_f64().min(most));
            if self.intervals.len() > AVERAGED {
                self.intervals.pop_front();
            }
            self.interval = self.intervals.iter().sum::<f64>() / self.intervals.len() as f64;
        }
    }

    /// When the consumer will want the batch after the next `ready` ones. Now, if its pace is unknown.
    pub(super) fn due_after(&self, ready: usize) -> Instant {
        let last = self.last.unwrap_or_else(Instant::now);
        last + Duration::from_secs_f64(self.interval * (ready + 1) as f64)
    }

    /// Ignores the interval until the next batch.
    pub(super) fn pause(&mut self) {
        self.last = None;
    }
}

/// Upper limits for the number of open batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub batch_size: usize,
    /// Batches that the plan asks for, if it does.
    pub asked: Option<usize>,
    /// Batches that keep all threads busy if all samples cost the same.
    pub useful: usize,
    /// Batches that fit into the memory budget.
    pub affordable: usize,
    pub is_first_come: bool,
}

/// The current look-ahead of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lookahead {
    /// Time between two batches.
    pub interval: Duration,
    /// Typical cost of a sample that is not slow.
    pub usual_cost: Duration,
    /// Samples that cost more are slow. `None` if the costs are too similar.
    pub slow_above: Option<Duration>,
    /// Batches to search for slow samples, counted from the one that the consumer needs next.
    pub batches_ahead: u64,
    /// Number of batches that may be open.
    pub open_batches: usize,
}

impl Lookahead {
    /// Whether a sample of this cost should start before its batch is open.
    pub(super) fn is_slow(&self, cost: Duration) -> bool {
        self.slow_above.is_some_and(|limit| cost > limit)
    }

    pub(super) fn new(limits: &Limits, pace: &Pace, spread: Spread) -> Self {
        let interval = Duration::from_secs_f64(pace.interval);
        // A slow sample costs more than each of these: 1.25 times the mean, the mean plus a quarter of a batch interval, and 1 ms.
        let slow = (spread.mean * 5 / 4).max(spread.mean + interval / 4).max(MIN_SLOW);
        let is_spread = !limits.is_first_come && pace.interval > 0.0 && spread.slowest > slow;
        // How many batches the consumer takes while the slowest sample is prepared.
        let intervals = if is_spread { spread.slowest.as_secs_f64() / pace.interval } else { 0.0 };
        // Open batches must cover twice that time, but never need more memory than the budget has.
        let by_default = (limits.useful + (OPEN_AHEAD * intervals).ceil() as usize).min(limits.affordable).max(1);
        let open_batches = limits.asked.unwrap_or(by_default);
        let most_ahead = MAX_POSITIONS.div_ceil(limits.batch_size);
        let batches_ahead = ((LOOK_AHEAD * intervals).ceil() as usize + open_batches).min(most_ahead) as u64;
        Self {
            interval,
            usual_cost: spread.mean,
            slow_above: is_spread.then_some(slow),
            batches_ahead: if is_spread { batches_ahead } else { 0 },
            open_batches,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(intervals_ms: &[u64]) -> Pace {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        pace.record(now);
        for &interval in intervals_ms {
            now += Duration::from_millis(interval);
            pace.record(now);
        }
        pace
    }

    fn lookahead(pace: &Pace, mean: u64, slowest: u64, asked: Option<usize>) -> Lookahead {
        let limits = Limits { batch_size: 8, asked, useful: 5, affordable: 1000, is_first_come: false };
        let spread = Spread { mean: Duration::from_millis(mean), slowest: Duration::from_millis(slowest) };
        Lookahead::new(&limits, pace, spread)
    }

    #[test]
    fn the_pace_is_that_of_bursts_together_and_survives_a_pause() {
        let bursts: Vec<u64> = (0..64).map(|number| if number % 8 == 0 { 80 } else { 0 }).collect();
        assert!((pace(&bursts).interval - 0.010).abs() < 1e-9);
        let mut paused = vec![10; 40];
        paused.push(60_000);
        assert!(pace(&paused).interval < 0.020, "{}", pace(&paused).interval);
    }

    #[test]
    fn costs_that_are_alike_need_no_look_ahead_and_no_further_batches() {
        let alike = lookahead(&pace(&[25; 10]), 20, 24, None);
        assert_eq!((alike.slow_above, alike.batches_ahead, alike.open_batches), (None, 0, 5));
        assert_eq!(lookahead(&Pace::default(), 5, 2000, None).batches_ahead, 0, "nothing is known of the consumer yet");
    }

    #[test]
    fn slow_samples_are_looked_for_far_ahead_and_more_batches_open_as_far_as_allowed() {
        let spread = lookahead(&pace(&[25; 10]), 25, 2000, None);
        assert!(spread.is_slow(Duration::from_secs(2)) && !spread.is_slow(Duration::from_millis(30)));
        assert_eq!((spread.open_batches, spread.batches_ahead), (165, 645));
        let asked = lookahead(&pace(&[25; 10]), 25, 2000, Some(32));
        assert_eq!((asked.open_batches, asked.batches_ahead), (32, 512));
    }
}
