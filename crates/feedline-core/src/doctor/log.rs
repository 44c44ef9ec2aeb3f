//! The batch log: when each batch came, how long it was waited for, and what is odd about that.
//!
//! In: the times of batches of any loader. Out: percentiles, and oddities, each with what it means.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::period::{Period, Split, median, period};

/// Batches that have to be there before anything but a period is said.
const LEAST_BATCHES: usize = 24;
/// A first batch of an epoch is slow if it is waited for this many times as long as others in the median, and this long.
const SLOW_START: f64 = 4.0;
const LEAST_START_MS: f64 = 20.0;
/// A drift is this much from the first to the last quarter.
const DRIFT: f64 = 1.25;
/// And the part of pairs that rise, of those in random order a half do.
const RISING: f64 = 0.75;
/// Pairs that are compared for it.
const MOST_PAIRS: usize = 200;
/// Milliseconds in which a sampler of utilisation looks whether anything is done.
const SAMPLED_MS: f64 = 100.0;
/// Both kinds of batches are at least this part.
const LEAST_KIND: f64 = 0.05;

/// One batch as its consumer saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BatchTime {
    /// The epoch it belongs to.
    pub epoch: u64,
    /// Milliseconds that the consumer waited for it.
    pub wait_ms: f64,
    /// Milliseconds from its readiness until the consumer had it, as arrays.
    pub hand_over_ms: f64,
    /// Milliseconds of the consumer's work on it.
    pub step_ms: f64,
    /// Samples in it.
    pub samples: u64,
}

impl BatchTime {
    /// From the question for it to the end of the work on it.
    pub fn total_ms(&self) -> f64 {
        self.wait_ms + self.hand_over_ms + self.step_ms
    }

    /// From the question for it until the consumer had it.
    pub fn load_ms(&self) -> f64 {
        self.wait_ms + self.hand_over_ms
    }
}

/// Something that is odd about a log.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Oddity {
    /// Slow batches come at equal distances.
    Period(Period),
    /// Epochs begin slowly.
    SlowStarts {
        /// What the first batch of an epoch is waited for, in the median.
        first_ms: f64,
        /// What others are.
        usual_ms: f64,
    },
    /// Batches take longer and longer, or shorter and shorter.
    Drift {
        /// The median of the first quarter.
        first_ms: f64,
        /// That of the last.
        last_ms: f64,
    },
    /// There are two kinds of batches.
    Bimodal {
        /// The median of the quick ones.
        quick_ms: f64,
        /// That of the slow ones.
        slow_ms: f64,
        /// The part that is slow.
        slow_share: f64,
    },
}

impl fmt::Display for Oddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Period(Period { batches, slow_ms, quick_ms, .. }) => write!(
                f,
                "every {batches}th batch takes {slow_ms:.0} ms, the others {quick_ms:.0} ms: {batches} workers prepare whole \
                 batches, and the consumer waits for all of them in turn; it is bound by the workers"
            ),
            Self::SlowStarts { first_ms, usual_ms } => write!(
                f,
                "the first batch of an epoch takes {first_ms:.0} ms, others {usual_ms:.1} ms: workers or buffers are built \
                 anew each epoch"
            ),
            Self::Drift { first_ms, last_ms } if last_ms > first_ms => write!(
                f,
                "batches take longer and longer, {first_ms:.1} ms at first and {last_ms:.1} ms at last: memory that \
                 leaks, a processor that is throttled, or a store that slows down"
            ),
            Self::Drift { first_ms, last_ms } => write!(
                f,
                "batches take less and less, {first_ms:.1} ms at first and {last_ms:.1} ms at last: caches fill; \
                 measure longer before you judge"
            ),
            Self::Bimodal { quick_ms, slow_ms, slow_share } => write!(
                f,
                "there are two kinds of batches: {:.0} % take {slow_ms:.1} ms, the others {quick_ms:.1} ms: a few slow \
                 samples, or reads that miss a cache",
                100.0 * slow_share
            ),
        }
    }
}

/// A log in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogReport {
    /// Batches in it.
    pub batches: usize,
    /// Samples a second.
    pub samples_per_second: f64,
    /// The part of the time in which the consumer waited for batches, or took them.
    pub stall_share: f64,
    /// What a sampler of utilisation would have shown: the part of tenths of a second in which a step was under way.
    pub utilisation_sampled: f64,
    /// Milliseconds from one batch to the next.
    pub total_ms: Percentiles,
    /// Of which the consumer waited.
    pub wait_ms: Percentiles,
    /// Of which it worked.
    pub step_ms: Percentiles,
    /// What is odd.
    pub oddities: Vec<Oddity>,
}

/// Where numbers lie.
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
    /// Of any numbers.
    pub fn of(numbers: impl Iterator<Item = f64>) -> Self {
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
    /// Looks at a log.
    pub fn new(log: &[BatchTime]) -> Self {
        let sum = |of: fn(&BatchTime) -> f64| log.iter().map(of).sum::<f64>();
        let (total, loading) = (sum(BatchTime::total_ms), sum(BatchTime::load_ms));
        let a_ms = |part: f64| if total > 0.0 { part / total } else { 0.0 };
        Self {
            batches: log.len(),
            samples_per_second: 1e3 * a_ms(sum(|batch| batch.samples as f64)),
            stall_share: a_ms(loading),
            utilisation_sampled: utilisation_sampled(log),
            total_ms: Percentiles::of(log.iter().map(BatchTime::total_ms)),
            wait_ms: Percentiles::of(log.iter().map(|batch| batch.wait_ms)),
            step_ms: Percentiles::of(log.iter().map(|batch| batch.step_ms)),
            oddities: oddities(log),
        }
    }
}

fn utilisation_sampled(log: &[BatchTime]) -> f64 {
    let (mut now, mut busy, mut last) = (0.0, 0_u64, None);
    for batch in log {
        let (start, end) = (now + batch.load_ms(), now + batch.total_ms());
        if end > start {
            let first = (start / SAMPLED_MS) as u64;
            let final_one = ((end / SAMPLED_MS).ceil() as u64 - 1).max(first);
            let first = last.map_or(first, |last: u64| first.max(last + 1));
            busy += (final_one + 1).saturating_sub(first);
            last = Some(last.map_or(final_one, |last: u64| last.max(final_one)));
        }
        now = end;
    }
    let all = (now / SAMPLED_MS).ceil();
    if all > 0.0 { (busy as f64 / all).min(1.0) } else { 0.0 }
}

/// What is odd about a log. The start of a run is not: it has to be left out.
fn oddities(log: &[BatchTime]) -> Vec<Oddity> {
    let loads: Vec<f64> = log.iter().map(BatchTime::load_ms).collect();
    let totals: Vec<f64> = log.iter().map(BatchTime::total_ms).collect();
    let mut found = Vec::new();
    // What is waited for tells more than a step can hide, but a foreign log may have nothing but times of batches.
    let has_period = period(&loads).or_else(|| period(&totals));
    found.extend(has_period.map(Oddity::Period));
    if log.len() < LEAST_BATCHES {
        return found;
    }
    found.extend(slow_starts(log));
    found.extend(drift(&totals));
    if found.is_empty() {
        found.extend(bimodal(&totals));
    }
    found
}

fn slow_starts(log: &[BatchTime]) -> Option<Oddity> {
    let (mut firsts, mut others) = (Vec::new(), Vec::new());
    for pair in log.windows(2) {
        let is_first = pair[0].epoch != pair[1].epoch;
        if is_first { &mut firsts } else { &mut others }.push(pair[1].load_ms());
    }
    firsts.sort_by(f64::total_cmp);
    others.sort_by(f64::total_cmp);
    let (first_ms, usual_ms) = (median(&firsts), median(&others));
    let is_slow = firsts.len() >= 2 && first_ms >= LEAST_START_MS && first_ms >= SLOW_START * usual_ms;
    is_slow.then_some(Oddity::SlowStarts { first_ms, usual_ms })
}

fn drift(times: &[f64]) -> Option<Oddity> {
    let quarter = times.len() / 4;
    let middle = |part: &[f64]| {
        let mut sorted = part.to_vec();
        sorted.sort_by(f64::total_cmp);
        median(&sorted)
    };
    let (first_ms, last_ms) = (middle(&times[..quarter]), middle(&times[times.len() - quarter..]));
    let stride = times.len().div_ceil(MOST_PAIRS.isqrt() * 2);
    let some: Vec<f64> = times.chunks(stride).map(middle).collect();
    let pairs =
        || some.iter().enumerate().flat_map(|(number, early)| some[number + 1..].iter().map(move |l| (early, l)));
    let rising = pairs().filter(|(early, late)| late > early).count() as f64 / pairs().count().max(1) as f64;
    let is_slower = last_ms > DRIFT * first_ms && rising > RISING;
    let is_faster = first_ms > DRIFT * last_ms && rising < 1.0 - RISING;
    (is_slower || is_faster).then_some(Oddity::Drift { first_ms, last_ms })
}

fn bimodal(times: &[f64]) -> Option<Oddity> {
    let Split { is_slow, slow_ms, quick_ms } = Split::of(times)?;
    let slow_share = is_slow.iter().filter(|slow| **slow).count() as f64 / times.len() as f64;
    let are_kinds = (LEAST_KIND..=1.0 - LEAST_KIND).contains(&slow_share);
    // Two kinds have little between them; a long tail has.
    let between = times.iter().filter(|time| (1.3 * quick_ms..slow_ms / 1.3).contains(*time)).count();
    let are_apart = (between as f64) < 0.5 * slow_share.min(1.0 - slow_share) * times.len() as f64;
    (are_kinds && are_apart).then_some(Oddity::Bimodal { quick_ms, slow_ms, slow_share })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(waits: impl Iterator<Item = f64>, epoch_len: u64) -> Vec<BatchTime> {
        let batch = |(number, wait_ms): (u64, f64)| BatchTime {
            epoch: number / epoch_len,
            wait_ms,
            hand_over_ms: 0.0,
            step_ms: 10.0,
            samples: 8,
        };
        (0..).zip(waits).map(batch).collect()
    }

    /// From 0 to 1.
    fn noise(number: u64) -> f64 {
        (xxhash_rust::xxh3::xxh3_64(&number.to_le_bytes()) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A little jitter.
    fn about(number: u64, value: f64) -> f64 {
        value * (1.0 + 0.1 * (noise(number) - 0.5))
    }

    #[test]
    fn a_steady_log_has_nothing_odd_and_its_percentiles_are_those_of_its_numbers() {
        let report = LogReport::new(&log((0..100).map(|n| about(n, 5.0)), 1000));
        assert_eq!(report.oddities, []);
        assert_eq!((report.batches, report.step_ms.p99), (100, 10.0));
        assert!((report.total_ms.p50 - 15.0).abs() < 0.3 && report.total_ms.most < 15.4);
    }

    #[test]
    fn epochs_that_begin_slowly_are_told() {
        let report = LogReport::new(&log((0..100).map(|n| if n % 20 == 0 { 400.0 } else { about(n, 2.0) }), 20));
        let is_told = |oddity: &Oddity| matches!(oddity, Oddity::SlowStarts { first_ms, .. } if *first_ms > 399.0);
        assert!(report.oddities.iter().any(is_told), "{:?}", report.oddities);
    }

    #[test]
    fn drifts_are_told_in_both_directions_and_noise_is_none() {
        let rising = LogReport::new(&log((0..200).map(|n| about(n, 5.0 + n as f64 / 20.0)), 1000)).oddities;
        assert!(matches!(&rising[..], [Oddity::Drift { first_ms, last_ms }] if last_ms > first_ms), "{rising:?}");
        assert!(rising[0].to_string().contains("longer and longer"));
        let falling = LogReport::new(&log((0..200).map(|n| about(n, 20.0 - n as f64 / 20.0)), 1000)).oddities;
        assert!(matches!(&falling[..], [Oddity::Drift { first_ms, last_ms }] if last_ms < first_ms), "{falling:?}");
        let noisy = LogReport::new(&log((0..200).map(|n| 5.0 + 10.0 * noise(n)), 1000)).oddities;
        assert_eq!(noisy, []);
    }

    #[test]
    fn two_kinds_of_batches_are_told_and_a_long_tail_is_not() {
        let slow = |n: u64| if noise(n + 1000) < 0.15 { 90.0 } else { 3.0 };
        let two = LogReport::new(&log((0..300).map(|n| about(n, slow(n))), 1000)).oddities;
        assert!(matches!(&two[..], [Oddity::Bimodal { .. }]), "{two:?}");
        let tail = LogReport::new(&log((0..300).map(|n| 3.0 / (0.03 + noise(n))), 1000));
        assert_eq!(tail.oddities, []);
    }

    #[test]
    fn a_sampler_shows_a_busy_accelerator_that_waits_for_half_of_its_time() {
        let of = |wait_ms| LogReport::new(&log(std::iter::repeat_n(wait_ms, 100), 1000));
        let half = of(10.0);
        assert_eq!((half.utilisation_sampled, half.stall_share, half.samples_per_second), (1.0, 0.5, 400.0));
        let slow = of(990.0).utilisation_sampled;
        assert!((slow - 0.1).abs() < 0.02, "{slow}");
    }

    #[test]
    fn one_batch_is_a_log_too() {
        let report = LogReport::new(&log(std::iter::once(5.0), 10));
        assert_eq!((report.batches, report.oddities.len(), report.wait_ms.p50), (1, 0, 5.0));
        assert_eq!(LogReport::new(&[]).batches, 0);
    }
}
