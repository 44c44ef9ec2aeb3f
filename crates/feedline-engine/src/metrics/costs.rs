//! Measures how well the costs of samples are predicted.
//!
//! In: the predicted and the measured cost of samples. Out: sums, from which the error follows as a ratio. Costs decide when work
//! starts, so a large error means that slow samples start late.

use std::time::Duration;

use serde::Serialize;

use super::Counter;

/// Compares predicted with measured costs.
#[derive(Debug, Default)]
pub struct CostMeter {
    samples: Counter,
    predicted: Counter,
    taken: Counter,
    error: Counter,
}

/// Predicted against measured costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CostSnapshot {
    /// Number of compared samples: all, or some of them if samples are fast.
    pub samples: u64,
    /// Sum of predicted costs.
    pub predicted_seconds: f64,
    /// Sum of measured costs.
    pub taken_seconds: f64,
    /// Sum of |predicted - measured|.
    pub error_seconds: f64,
    /// Mean of |predicted - measured| divided by the mean measured cost. 0 before the first comparison.
    pub prediction_error: f64,
}

impl CostMeter {
    /// Adds a sample.
    pub fn add(&self, predicted: Duration, taken: Duration) {
        self.samples.add(1);
        self.predicted.add_time(predicted);
        self.taken.add_time(taken);
        self.error.add_time(predicted.abs_diff(taken));
    }

    /// The sums.
    pub fn read(&self) -> CostSnapshot {
        let (taken_seconds, error_seconds) = (self.taken.seconds(), self.error.seconds());
        CostSnapshot {
            samples: self.samples.get(),
            predicted_seconds: self.predicted.seconds(),
            taken_seconds,
            error_seconds,
            // The number of samples cancels out of the ratio of the two means.
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
