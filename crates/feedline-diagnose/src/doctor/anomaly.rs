//! Finds anomalies in a log of batches, and explains them.

use std::fmt;

use serde::Serialize;

use super::log::{BatchTime, LoadedBy, Percentiles};
use super::period::{Period, Split, median, period};

/// Number of batches before anything but a period is reported.
const MIN_BATCHES: usize = 24;
/// Epochs start slowly if the median wait for their first batch is this many times the median of the other batches, and at least
/// [`MIN_START_MS`].
const SLOW_START_RATIO: f64 = 4.0;
const MIN_START_MS: f64 = 20.0;
/// Least ratio between the last and the first quarter for a drift.
const MIN_DRIFT_RATIO: f64 = 1.25;
/// Least fraction of rising pairs for a drift. In random order it is a half.
const MIN_RISING_SHARE: f64 = 0.75;
/// Number that limits the pairs that are compared: `2 * isqrt(200)` = 28 medians have at most 378 pairs.
const MAX_PAIRS: usize = 200;
/// Periods whose waits differ by less than this fraction of a batch's time are not reported.
const MIN_PERIOD_SHARE: f64 = 0.05;
/// Least fraction of each kind of batches.
const MIN_KIND_SHARE: f64 = 0.05;

/// The cause of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PeriodCause {
    /// Worker processes that prepare whole batches in turn. They are the bottleneck.
    Workers,
    /// Something that takes long to load.
    Loading,
    /// Something in the step.
    Step,
}

/// An anomaly in a log.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Anomaly {
    /// Slow batches come at regular intervals.
    Period {
        /// The interval.
        #[serde(flatten)]
        period: Period,
        /// The cause.
        cause: PeriodCause,
    },
    /// Epochs start slowly.
    SlowStarts {
        /// Median wait for the first batch of an epoch.
        first_ms: f64,
        /// Median wait for other batches.
        usual_ms: f64,
    },
    /// Batches become slower or faster over time.
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
        /// The fraction of slow batches.
        slow_share: f64,
    },
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Period { period: Period { batches, slow_ms, quick_ms, .. }, cause } => write!(
                f,
                "every {} batch takes {slow_ms:.0} ms, the others {quick_ms:.0} ms: {}",
                ordinal(*batches),
                match cause {
                    PeriodCause::Workers => format!(
                        "{batches} workers each prepare whole batches, and the consumer waits for all of them in turn. The bottleneck is the \
                         workers"
                    ),
                    PeriodCause::Loading => format!(
                        "something is slow to load every {batches} batches: a slow sample in a short epoch, or the end \
                         of a block or shard"
                    ),
                    PeriodCause::Step => format!(
                        "the training step does extra work every {batches} batches, for example logging, saving or validation"
                    ),
                }
            ),
            Self::SlowStarts { first_ms, usual_ms } => write!(
                f,
                "the first batch of an epoch takes {first_ms:.0} ms, others {usual_ms:.1} ms: workers or buffers are created \
                 again in each epoch"
            ),
            Self::Drift { first_ms, last_ms } if last_ms > first_ms => write!(
                f,
                "batches take longer and longer, {first_ms:.1} ms at first and {last_ms:.1} ms at the end; possible causes: a \
                 memory leak, a throttled processor, a store that slows down"
            ),
            Self::Drift { first_ms, last_ms } => write!(
                f,
                "batches get faster, {first_ms:.1} ms at first and {last_ms:.1} ms at the end; probably caches \
                 fill: measure for longer"
            ),
            Self::Bimodal { quick_ms, slow_ms, slow_share } => write!(
                f,
                "there are two kinds of batches: {:.0} % take {slow_ms:.1} ms, the others {quick_ms:.1} ms; possible \
                 causes: a few slow samples, reads that miss a cache",
                100.0 * slow_share
            ),
        }
    }
}

fn ordinal(number: usize) -> String {
    let ending = match (number % 10, number % 100) {
        // 11th, 12th and 13th are exceptions to the last digit.
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// The anomalies of a log.
pub(super) fn anomalies(log: &[BatchTime], by: LoadedBy) -> Vec<Anomaly> {
    let loads: Vec<f64> = log.iter().map(BatchTime::load_ms).collect();
    let totals: Vec<f64> = log.iter().map(BatchTime::total_ms).collect();
    let mut found = Vec::new();
    let loading_cause = match by {
        LoadedBy::Feedline => PeriodCause::Loading,
        LoadedBy::Foreign => PeriodCause::Workers,
    };
    let usual = Percentiles::of(totals.iter().copied()).p50;
    // A period is only worth a report if it costs a visible part of the time of a batch.
    let matters = |period: &Period| period.slow_ms - period.quick_ms >= MIN_PERIOD_SHARE * usual;
    let found_period = period(&loads).filter(matters).map(|period| (period, loading_cause));
    let found_period = found_period.or_else(|| {
        let cause = if waits_longer(log, &totals) { loading_cause } else { PeriodCause::Step };
        Some((period(&totals)?, cause))
    });
    found.extend(found_period.map(|(period, cause)| Anomaly::Period { period, cause }));
    if log.len() < MIN_BATCHES {
        return found;
    }
    found.extend(slow_starts(log));
    found.extend(drift(&totals));
    // A period, a slow start or a drift also makes two kinds of batches. They explain more.
    if found.is_empty() {
        found.extend(bimodal(&totals));
    }
    found
}

/// Whether slow batches are slow because of waiting rather than because of their steps.
fn waits_longer(log: &[BatchTime], totals: &[f64]) -> bool {
    let Some(split) = Split::of(totals) else { return false };
    let mean_of = |is_slow: bool, of: fn(&BatchTime) -> f64| {
        let kind = log.iter().zip(&split.is_slow).filter(|(_, slow)| **slow == is_slow).map(|(batch, _)| of(batch));
        let (count, sum) = kind.fold((0_u32, 0.0), |(count, sum), time| (count + 1, sum + time));
        sum / f64::from(count.max(1))
    };
    let longer = |of: fn(&BatchTime) -> f64| mean_of(true, of) - mean_of(false, of);
    longer(BatchTime::load_ms) > longer(|batch| batch.step_ms)
}

fn slow_starts(log: &[BatchTime]) -> Option<Anomaly> {
    let (mut firsts, mut others) = (Vec::new(), Vec::new());
    for pair in log.windows(2) {
        // The first batch of the log has no predecessor. It may be the start of the run, and is left out.
        let is_first = pair[0].epoch != pair[1].epoch;
        if is_first { &mut firsts } else { &mut others }.push(pair[1].load_ms());
    }
    firsts.sort_by(f64::total_cmp);
    others.sort_by(f64::total_cmp);
    let (first_ms, usual_ms) = (median(&firsts), median(&others));
    let is_slow = firsts.len() >= 2 && first_ms >= MIN_START_MS && first_ms >= SLOW_START_RATIO * usual_ms;
    is_slow.then_some(Anomaly::SlowStarts { first_ms, usual_ms })
}

fn drift(times: &[f64]) -> Option<Anomaly> {
    let quarter = times.len() / 4;
    let middle = |part: &[f64]| {
        let mut sorted = part.to_vec();
        sorted.sort_by(f64::total_cmp);
        median(&sorted)
    };
    let (first_ms, last_ms) = (middle(&times[..quarter]), middle(&times[times.len() - quarter..]));
    // Medians of neighbouring batches, so that the number of pairs does not grow with the log.
    let stride = times.len().div_ceil(MAX_PAIRS.isqrt() * 2);
    let some: Vec<f64> = times.chunks(stride).map(middle).collect();
    let pairs =
        || some.iter().enumerate().flat_map(|(number, early)| some[number + 1..].iter().map(move |l| (early, l)));
    // The fraction of concordant pairs, as in Kendall's tau: robust against single slow batches.
    let rising = pairs().filter(|(early, late)| late > early).count() as f64 / pairs().count().max(1) as f64;
    let is_slower = last_ms > MIN_DRIFT_RATIO * first_ms && rising > MIN_RISING_SHARE;
    let is_faster = first_ms > MIN_DRIFT_RATIO * last_ms && rising < 1.0 - MIN_RISING_SHARE;
    (is_slower || is_faster).then_some(Anomaly::Drift { first_ms, last_ms })
}

fn bimodal(times: &[f64]) -> Option<Anomaly> {
    let Split { is_slow, slow_ms, quick_ms } = Split::of(times)?;
    let slow_share = is_slow.iter().filter(|slow| **slow).count() as f64 / times.len() as f64;
    let are_kinds = (MIN_KIND_SHARE..=1.0 - MIN_KIND_SHARE).contains(&slow_share);
    // Two kinds have little in between, unlike a long tail. A batch within a factor of 1.3 of a kind's median belongs to that kind.
    // Fewer than half as many batches may lie in between as in the smaller kind.
    let between = times.iter().filter(|time| (1.3 * quick_ms..slow_ms / 1.3).contains(*time)).count();
    let are_apart = (between as f64) < 0.5 * slow_share.min(1.0 - slow_share) * times.len() as f64;
    (are_kinds && are_apart).then_some(Anomaly::Bimodal { quick_ms, slow_ms, slow_share })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::doctor::LogReport;

    const BY: LoadedBy = LoadedBy::Feedline;

    pub(crate) fn log(waits: impl Iterator<Item = f64>, epoch_len: u64) -> Vec<BatchTime> {
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
    pub(crate) fn about(number: u64, value: f64) -> f64 {
        value * (1.0 + 0.1 * (noise(number) - 0.5))
    }

    #[test]
    fn epochs_that_begin_slowly_are_told() {
        let report = LogReport::new(&log((0..100).map(|n| if n % 20 == 0 { 400.0 } else { about(n, 2.0) }), 20), BY);
        let is_told = |anomaly: &Anomaly| matches!(anomaly, Anomaly::SlowStarts { first_ms, .. } if *first_ms > 399.0);
        assert!(report.anomalies.iter().any(is_told), "{:?}", report.anomalies);
    }

    #[test]
    fn drifts_are_told_in_both_directions_and_noise_is_none() {
        let rising = LogReport::new(&log((0..200).map(|n| about(n, 5.0 + n as f64 / 20.0)), 1000), BY).anomalies;
        assert!(matches!(&rising[..], [Anomaly::Drift { first_ms, last_ms }] if last_ms > first_ms), "{rising:?}");
        assert!(rising[0].to_string().contains("longer and longer"));
        let falling = LogReport::new(&log((0..200).map(|n| about(n, 20.0 - n as f64 / 20.0)), 1000), BY).anomalies;
        assert!(matches!(&falling[..], [Anomaly::Drift { first_ms, last_ms }] if last_ms < first_ms), "{falling:?}");
        let noisy = LogReport::new(&log((0..200).map(|n| 5.0 + 10.0 * noise(n)), 1000), BY).anomalies;
        assert_eq!(noisy, []);
    }

    #[test]
    fn two_kinds_of_batches_are_told_and_a_long_tail_is_not() {
        let slow = |n: u64| if noise(n + 1000) < 0.15 { 90.0 } else { 3.0 };
        let two = LogReport::new(&log((0..300).map(|n| about(n, slow(n))), 1000), BY).anomalies;
        assert!(matches!(&two[..], [Anomaly::Bimodal { .. }]), "{two:?}");
        let tail = LogReport::new(&log((0..300).map(|n| 3.0 / (0.03 + noise(n))), 1000), BY);
        assert_eq!(tail.anomalies, []);
    }

    #[test]
    fn a_period_is_of_workers_of_something_slow_or_of_the_step() {
        let waits = log((0..60).map(|n| about(n, if n % 4 == 0 { 400.0 } else { 2.0 })), 1000);
        let mut steps = log((0..60).map(|n| about(n, 2.0)), 1000);
        steps.iter_mut().step_by(10).for_each(|batch| batch.step_ms = 300.0);
        for (batches, log, by, is) in [
            (4, &waits, LoadedBy::Foreign, PeriodCause::Workers),
            (4, &waits, LoadedBy::Feedline, PeriodCause::Loading),
            (10, &steps, LoadedBy::Foreign, PeriodCause::Step),
        ] {
            let found = anomalies(log, by);
            let is_told = |odd: &Anomaly| matches!(odd, Anomaly::Period { period, cause } if period.batches == batches && *cause == is);
            assert!(found.iter().any(is_told), "{found:?}");
        }
        // Loading varies so much that only the sums have a period.
        let mut uneven = log((0..60).map(|_| 1000.0), 1000);
        for (batch, n) in uneven.iter_mut().zip(0_u64..).filter(|(_, n)| n % 4 != 0) {
            (batch.wait_ms, batch.step_ms) = if noise(n) < 0.5 { (260.0, 1.0) } else { (0.5, 200.0) };
        }
        let told = anomalies(&uneven, LoadedBy::Foreign);
        assert!(period(&uneven.iter().map(BatchTime::load_ms).collect::<Vec<_>>()).is_none());
        let is_told = |odd: &Anomaly| matches!(odd, Anomaly::Period { cause: PeriodCause::Workers, .. });
        assert!(told.iter().any(is_told), "{told:?}");
        let mut tiny = log((0..60).map(|n| if n % 4 == 0 { 0.05 } else { 0.02 }), 1000);
        for batch in &mut tiny {
            batch.step_ms = 100.0;
        }
        assert_eq!(anomalies(&tiny, LoadedBy::Foreign), [], "nobody minds");
        assert_eq!([2, 3, 4, 11, 21].map(ordinal), ["2nd", "3rd", "4th", "11th", "21st"]);
    }
}
