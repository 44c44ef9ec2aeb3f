//! A histogram of costs.
//!
//! In: times. Out: the time above which a given fraction of the work lies. Always true: recent times count most.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Number of times after which older ones start to count less.
const WINDOW_SAMPLES: u64 = 4096;
/// Buckets per factor of two.
const STEPS: usize = 8;
const BUCKETS: usize = 64 * STEPS;
/// The powers `2^(step / 8)` inside a factor of two.
const INNER_STEPS: [f64; STEPS - 1] = [
    1.090_507_732_665_257_7,
    1.189_207_115_002_721,
    1.296_839_554_651_009_6,
    std::f64::consts::SQRT_2,
    1.542_210_825_407_940_7,
    1.681_792_830_507_429,
    1.834_008_086_409_342_4,
];
/// The middle of each bucket on the logarithmic scale, in nanoseconds.
static MIDDLES: LazyLock<[f64; BUCKETS]> =
    LazyLock::new(|| std::array::from_fn(|bucket| ((bucket as f64 + 0.5) / STEPS as f64).exp2()));

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
    /// Adds times.
    pub(super) fn add(&self, times: &[Duration]) {
        for time in times {
            self.buckets[bucket(*time)].fetch_add(1, Ordering::Relaxed);
        }
        let added = times.len() as u64;
        if self.count.fetch_add(added, Ordering::Relaxed) + added >= 2 * WINDOW_SAMPLES {
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
        let middles = &*MIDDLES;
        let counts: Vec<f64> = self.buckets.iter().map(|count| count.load(Ordering::Relaxed).into()).collect();
        let work: f64 = counts.iter().zip(middles).map(|(count, time)| count * time).sum();
        let mut above = 0.0;
        let found = (0..BUCKETS).rev().find(|&bucket| {
            // From the slowest bucket down, until the work above exceeds the ignored part.
            above += counts[bucket] * middles[bucket];
            above > work * part
        });
        Duration::from_nanos(found.map_or(0, |bucket| middles[bucket] as u64))
    }
}

/// The bucket of a time. Buckets are logarithmic, 9 % wide each.
fn bucket(time: Duration) -> usize {
    // One more, because 0 has no logarithm.
    let bits = ((time.as_nanos() as u64).saturating_add(1) as f64).to_bits();
    // A float consists of a power of two and a number from 1 to 2, so no logarithm has to be computed.
    let power = (bits >> 52) as usize - 1023;
    let within = f64::from_bits(bits & ((1 << 52) - 1) | 1.0_f64.to_bits());
    let step = INNER_STEPS.iter().filter(|&&from| within >= from).count();
    (power * STEPS + step).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_steps_of_the_logarithm() {
        for nanos in (0..5000).chain([65_534, 65_535, 1 << 40, u64::MAX]) {
            let expected = ((nanos as f64 + 1.0).log2() * STEPS as f64) as usize;
            assert_eq!(bucket(Duration::from_nanos(nanos)), expected.min(BUCKETS - 1), "{nanos}");
        }
    }

    fn of(times_ms: &[(usize, f64)]) -> Histogram {
        let histogram = Histogram::default();
        for &(count, time) in times_ms {
            (0..count).for_each(|_| histogram.add(&[Duration::from_secs_f64(time / 1e3)]));
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
