//! The batch log: when each batch came, how long the consumer waited, and anomalies.
//!
//! In: the times of batches of any loader. Out: percentiles, and explained anomalies.

use serde::{Deserialize, Serialize};

use super::anomaly::{Anomaly, anomalies};
use super::period::median;

/// Interval at which a utilisation monitor samples, in milliseconds.
const MONITOR_MS: f64 = 100.0;

/// Who loads the batches of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadedBy {
    /// Feedline: all threads prepare samples of the next batch.
    Feedline,
    /// Another loader, of which nothing is known.
    Foreign,
}

/// One batch from the consumer's point of view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BatchTime {
    /// The epoch it belongs to.
    pub epoch: u64,
    /// Milliseconds that the consumer waited for it.
    pub wait_ms: f64,
    /// Milliseconds from its completion until the consumer had its arrays.
    pub hand_over_ms: f64,
    /// Milliseconds of the training step.
    pub step_ms: f64,
    /// Samples in it.
    pub samples: u64,
}

impl BatchTime {
    /// Milliseconds from the request to the end of the step.
    pub fn total_ms(&self) -> f64 {
        self.wait_ms + self.hand_over_ms + self.step_ms
    }

    /// Milliseconds from the request until the consumer had it.
    pub(crate) fn load_ms(&self) -> f64 {
        self.wait_ms + self.hand_over_ms
    }
}

/// The statistics of a log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogReport {
    /// Batches in it.
    pub batches: usize,
    /// Samples per second.
    pub samples_per_second: f64,
    /// The fraction of the time in which the consumer waited for batches or received them.
    pub stall_share: f64,
    /// What a utilisation monitor would have shown: the fraction of tenths of a second that contain a part of a step.
    pub utilisation_sampled: f64,
    /// Milliseconds from one batch to the next.
    pub total_ms: Percentiles,
    /// Milliseconds of waiting.
    pub wait_ms: Percentiles,
    /// Milliseconds of the step.
    pub step_ms: Percentiles,
    /// The anomalies.
    pub anomalies: Vec<Anomaly>,
}

/// The distribution of some numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Percentiles {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub most: f64,
}

impl Percentiles {
    /// Zeros if there are no numbers.
    pub(crate) fn of(numbers: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = numbers.collect();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let place = (part * sorted.len() as f64) as usize;
            sorted.get(place).or(sorted.last()).copied().unwrap_or_default()
        };
        let mean = sorted.iter().sum::<f64>() / sorted.len().max(1) as f64;
        Self { mean, p50: median(&sorted), p90: at(0.9), p99: at(0.99), most: at(1.0) }
    }
}

impl LogReport {
    /// Analyses a log.
    pub(crate) fn new(log: &[BatchTime], by: LoadedBy) -> Self {
        let sum = |of: fn(&BatchTime) -> f64| log.iter().map(of).sum::<f64>();
        let (total, loading) = (sum(BatchTime::total_ms), sum(BatchTime::load_ms));
        let per_ms = |part: f64| if total > 0.0 { part / total } else { 0.0 };
        Self {
            batches: log.len(),
            // Samples per millisecond, times 1000.
            samples_per_second: 1e3 * per_ms(sum(|batch| batch.samples as f64)),
            stall_share: per_ms(loading),
            utilisation_sampled: utilisation_sampled(log),
            total_ms: Percentiles::of(log.iter().map(BatchTime::total_ms)),
            wait_ms: Percentiles::of(log.iter().map(|batch| batch.wait_ms)),
            step_ms: Percentiles::of(log.iter().map(|batch| batch.step_ms)),
            anomalies: anomalies(log, by),
        }
    }
}

fn utilisation_sampled(log: &[BatchTime]) -> f64 {
    let (mut now, mut busy, mut last) = (0.0, 0_u64, None);
    for batch in log {
        // A monitor reports an interval as busy if any part of a step lies in it. So it overestimates short steps.
        let (start, end) = (now + batch.load_ms(), now + batch.total_ms());
        if end > start {
            let first = (start / MONITOR_MS) as u64;
            // The interval that contains the end of the step. A step that ends exactly on a border does not touch the next
            // interval.
            let final_one = ((end / MONITOR_MS).ceil() as u64 - 1).max(first);
            // An interval that the previous step has touched is not counted twice.
            let first = last.map_or(first, |last: u64| first.max(last + 1));
            busy += (final_one + 1).saturating_sub(first);
            last = Some(last.map_or(final_one, |last: u64| last.max(final_one)));
        }
        now = end;
    }
    let all = (now / MONITOR_MS).ceil();
    if all > 0.0 { (busy as f64 / all).min(1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::anomaly::tests::{about, log};

    const BY: LoadedBy = LoadedBy::Feedline;

    #[test]
    fn a_steady_log_has_nothing_odd_and_its_percentiles_are_those_of_its_numbers() {
        let report = LogReport::new(&log((0..100).map(|n| about(n, 5.0)), 1000), BY);
        assert_eq!(report.anomalies, []);
        assert_eq!((report.batches, report.step_ms.p99), (100, 10.0));
        assert!((report.total_ms.p50 - 15.0).abs() < 0.3 && report.total_ms.most < 15.4);
    }

    #[test]
    fn a_sampler_shows_a_busy_accelerator_that_waits_for_half_of_its_time() {
        let of = |wait_ms| LogReport::new(&log(std::iter::repeat_n(wait_ms, 100), 1000), BY);
        let half = of(10.0);
        assert_eq!((half.utilisation_sampled, half.stall_share, half.samples_per_second), (1.0, 0.5, 400.0));
        let slow = of(990.0).utilisation_sampled;
        assert!((slow - 0.1).abs() < 0.02, "{slow}");
    }

    #[test]
    fn one_batch_is_a_log_too() {
        let report = LogReport::new(&log(std::iter::once(5.0), 10), BY);
        assert_eq!((report.batches, report.anomalies.len(), report.wait_ms.p50), (1, 0, 5.0));
        assert_eq!(LogReport::new(&[], BY).batches, 0);
    }
}
