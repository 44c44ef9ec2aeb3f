//! A histogram of costs.
//!
//! In: times. Out: the time above which a given fraction of the work lies. Always true: recent times count most.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Number of times after which older ones start to count less.
const WINDOW_SAMPLES: u64 = 4096;
/// Buckets per factor of two.
const STEPS: f64 = 8.0;
const BUCKETS: usize = 64 * STEPS as usize;

/// Counts by the logarithm of the time.
#[derive(Debug)]
pub(super) struct Histogram {
    buckets: Box<[AtomicU32]>,
    count: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(), count: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Adds a time.
    pub(super) fn add(&self, time: Duration) {
        // Buckets are logarithmic, 9 % wide each. Adding 1 avoids the logarithm of 0.
        let bucket = (((time.as_nanos() + 1) as f64).log2() * STEPS) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        if self.count.fetch_add(1, Ordering::Relaxed) + 1 >= 2 * WINDOW_SAMPLES {
            // Halving is not atomic with other threads' additions. A few counts may be lost, which a histogram tolerates.
            self.count.store(WINDOW_SAMPLES, Ordering::Relaxed);
            for bucket in &self.buckets {
                bucket.store(bucket.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
            }
        }
    }

    /// The counts, shortest times first.
    pub(super) fn counts(&self) -> impl Iterator<Item = u32> {
        self.buckets.iter().map(|count| count.load(Ordering::Relaxed))
    }

    /// Reads counts from bytes. Returns the rest, or `None` if the bytes are truncated.
    pub(super) fn fill<'b>(&self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let (counts, rest) = bytes.split_at_checked(BUCKETS * 4)?;
        let mut sum = 0;
        for (bucket, count) in self.buckets.iter().zip(counts.as_chunks().0) {
            let count = u32::from_le_bytes(*count);
            bucket.store(count, Ordering::Relaxed);
            sum += u64::from(count);
        }
        self.count.store(sum, Ordering::Relaxed);
        Some(rest)
    }

    /// The cost of the slowest samples. Outliers that together make up less than `part` of all work are ignored.
    pub(super) fn slowest_without_outliers(&self, part: f64) -> Duration {
        // The middle of the bucket on the logarithmic scale, in nanoseconds.
        let time = |bucket: usize| ((bucket as f64 + 0.5) / STEPS).exp2();
        let counts: Vec<f64> = self.buckets.iter().map(|count| count.load(Ordering::Relaxed).into()).collect();
        let work: f64 = counts.iter().enumerate().map(|(bucket, count)| count * time(bucket)).sum();
        let mut above = 0.0;
        let found = (0..BUCKETS).rev().find(|&bucket| {
            // From the slowest bucket down, until the work above exceeds the ignored part.
            above += counts[bucket] * time(bucket);
            above > work * part
        });
        Duration::from_nanos(found.map_or(0, |bucket| time(bucket) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times_ms: &[(usize, f64)]) -> Histogram {
        let histogram = Histogram::default();
        for &(count, time) in times_ms {
            (0..count).for_each(|_| histogram.add(Duration::from_secs_f64(time / 1e3)));
        }
        histogram
    }

    #[test]
    fn a_few_hiccups_do_not_count_as_slow_but_a_heavy_tail_does() {
        let near = |found: Duration, expected: f64| (found.as_secs_f64() * 1e3 / expected - 1.0).abs() < 0.1;
        assert!(near(of(&[(1000, 5.0)]).slowest_without_outliers(0.1), 5.0));
        assert!(near(of(&[(1000, 1.0), (5, 15.0)]).slowest_without_outliers(0.1), 1.0));
        assert!(near(of(&[(990, 5.0), (10, 2000.0)]).slowest_without_outliers(0.1), 2000.0));
        assert_eq!(Histogram::default().slowest_without_outliers(0.1), Duration::ZERO);
    }

    #[test]
    fn late_times_count_most() {
        let histogram = of(&[(20_000, 100.0), (60_000, 1.0)]);
        assert!(histogram.slowest_without_outliers(0.1) < Duration::from_millis(2));
    }
}
