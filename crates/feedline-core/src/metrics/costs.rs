//! How well it is known beforehand what samples take.
//!
//! In: what a sample was expected to take, and took. Out: sums, of which the error is a ratio. Costs decide when work is done,
//! so a large error says that slow samples start late.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

/// Compares predictions with what came.
#[derive(Debug, Default)]
pub struct CostMeter {
    samples: AtomicU64,
    predicted_nanos: AtomicU64,
    taken_nanos: AtomicU64,
    error_nanos: AtomicU64,
}

/// Predictions of costs, against what samples took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CostSnapshot {
    /// Samples that were compared: all, or one in a few where samples are quick.
    pub samples: u64,
    /// What they were predicted to take.
    pub predicted_seconds: f64,
    /// What they took.
    pub taken_seconds: f64,
    /// The sum of |predicted - taken|.
    pub error_seconds: f64,
    /// The mean of |predicted - taken|, as a part of the mean taken; 0 before anything was compared.
    pub prediction_error: f64,
}

impl CostMeter {
    /// Books a sample.
    pub fn add(&self, predicted: Duration, taken: Duration) {
        let add = |counter: &AtomicU64, time: Duration| counter.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        self.samples.fetch_add(1, Ordering::Relaxed);
        add(&self.predicted_nanos, predicted);
        add(&self.taken_nanos, taken);
        add(&self.error_nanos, predicted.abs_diff(taken));
    }

    /// The sums.
    pub fn read(&self) -> CostSnapshot {
        let seconds = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Relaxed)).as_secs_f64();
        let (taken_seconds, error_seconds) = (seconds(&self.taken_nanos), seconds(&self.error_nanos));
        CostSnapshot {
            samples: self.samples.load(Ordering::Relaxed),
            predicted_seconds: seconds(&self.predicted_nanos),
            taken_seconds,
            error_seconds,
            prediction_error: if taken_seconds > 0.0 { error_seconds / taken_seconds } else { 0.0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn errors_in_both_directions_add_up() {
        let meter = CostMeter::default();
        assert_eq!(meter.read(), CostSnapshot::default());
        meter.add(5 * MS, 10 * MS);
        meter.add(35 * MS, 30 * MS);
        let read = meter.read();
        assert_eq!(read.samples, 2);
        for (found, expected) in [
            (read.predicted_seconds, 0.040),
            (read.taken_seconds, 0.040),
            (read.error_seconds, 0.010),
            (read.prediction_error, 0.25),
        ] {
            assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
        }
    }
}
