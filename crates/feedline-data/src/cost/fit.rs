//! Models the cost of a stage by the size of a sample, for unseen samples.

/// Number of samples after which older ones start to count less.
const WINDOW_SAMPLES: f64 = 4096.0;
/// Number of samples before the first prediction.
const MIN_SAMPLES: f64 = 8.0;

/// A least-squares line through costs by size.
#[derive(Clone, Debug, Default)]
pub struct Fit {
    count: f64,
    mean_size: f64,
    mean_time: f64,
    /// Sums of squares and products of differences from the means.
    size_squares: f64,
    time_squares: f64,
    products: f64,
}

impl Fit {
    /// Adds a sample of `size` that took `time`.
    pub fn add(&mut self, size: f64, time: f64) {
        if self.count >= WINDOW_SAMPLES {
            // Exponential forgetting: halving the weight of everything so far keeps the line and its slope.
            for sum in [&mut self.count, &mut self.size_squares, &mut self.time_squares, &mut self.products] {
                *sum *= 0.5;
            }
        }
        // Welford's online algorithm for means, variances and covariance, which is numerically stable.
        self.count += 1.0;
        let from_mean = size - self.mean_size;
        self.mean_size += from_mean / self.count;
        let from_mean_time = time - self.mean_time;
        self.mean_time += from_mean_time / self.count;
        self.time_squares += from_mean_time * (time - self.mean_time);
        self.size_squares += from_mean * (size - self.mean_size);
        self.products += from_mean * (time - self.mean_time);
    }

    /// The expected cost of a sample of `size`, or the mean if size does not explain it. `None` before the first sample.
    pub fn expect(&self, size: f64) -> Option<f64> {
        (self.count > 0.0).then(|| self.predict(size).unwrap_or(self.mean_time))
    }

    /// The fraction of the variance of costs that size explains. 0 if larger samples do not take longer.
    pub(crate) fn explained(&self) -> f64 {
        let has_trend = self.count >= MIN_SAMPLES && self.products > 0.0;
        // The coefficient of determination, R^2.
        if has_trend { self.products * self.products / (self.size_squares * self.time_squares) } else { 0.0 }
    }

    /// The expected cost of a sample of `size`, if larger samples take longer.
    pub(crate) fn predict(&self, size: f64) -> Option<f64> {
        let has_trend = self.count >= MIN_SAMPLES && self.size_squares > 0.0 && self.products > 0.0;
        has_trend.then(|| {
            // Ordinary least squares: slope = covariance / variance of the sizes.
            let slope = self.products / self.size_squares;
            (self.mean_time + slope * (size - self.mean_size)).max(0.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_grow_with_size_are_predicted_and_others_are_left_to_the_mean() {
        let mut fit = Fit::default();
        for size in 0..8 {
            assert_eq!(fit.predict(1.0), None, "too few samples");
            fit.add(f64::from(size), 5.0 + 3.0 * f64::from(size));
        }
        let predicted = fit.predict(100.0).unwrap();
        assert!((predicted - 305.0).abs() < 1e-6, "{predicted}");
        assert!(fit.predict(-100.0).unwrap() == 0.0, "no time is negative");
        let mut alike = Fit::default();
        (0..20).for_each(|_| alike.add(7.0, 1.0));
        assert_eq!(alike.predict(7.0), None);
    }

    #[test]
    fn late_samples_count_most() {
        let mut fit = Fit::default();
        for number in 0..60_000 {
            let size = f64::from(number % 100);
            fit.add(size, if number < 20_000 { 9.0 * size } else { size });
        }
        assert!((fit.predict(50.0).unwrap() - 50.0).abs() < 2.0);
    }
}
