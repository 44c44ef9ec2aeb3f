//! Reports the costs of samples: how much they differ, why, and how well they are predicted.
//!
//! In: predicted and measured costs of an epoch's samples. Out: plain numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use feedline_data::plan::Plan;
use feedline_order::{Epoch, Occurrence, Ordinal, SampleRequest};
use serde::Serialize;

/// Bars of the histogram per factor of two.
const BARS_PER_DOUBLING: f64 = 1.0;

/// The costs of the samples of an epoch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct CostReport {
    pub samples: usize,
    pub mean_ms: f64,
    pub median_ms: f64,
    pub p99_ms: f64,
    pub slowest_ms: f64,
    pub histogram: Vec<Bar>,
    pub slowest: Vec<SlowSample>,
    /// Mean of |predicted - measured| divided by the mean measured cost.
    pub prediction_error: f64,
    /// The fractions of the variance that size (bytes or elements) and draws explain.
    pub explained_by_size: f64,
    pub explained_by_draws: f64,
}

/// Samples that took from `from_ms` up to `to_ms`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Bar {
    pub from_ms: f64,
    pub to_ms: f64,
    pub samples: usize,
}

/// One of the slowest samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct SlowSample {
    pub key: String,
    pub ms: f64,
    pub predicted_ms: f64,
}

impl CostReport {
    /// A report of an epoch, from `predicted` and `taken` costs in source order.
    pub fn new(plan: &Plan, epoch: Epoch, predicted: &[Duration], taken: &[Option<Duration>], slowest: usize) -> Self {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let known: Vec<(u64, f64, f64)> = (0..)
            .zip(predicted.iter().zip(taken))
            .filter_map(|(ordinal, (predicted, taken))| Some((ordinal, ms(*predicted), ms((*taken)?))))
            .collect();
        let mut sorted: Vec<f64> = known.iter().map(|&(.., taken)| taken).collect();
        sorted.sort_by(f64::total_cmp);
        let at =
            // The nearest-rank percentile. `part = 1` would be one past the end, so it takes the last.
            |part: f64| sorted.get((part * sorted.len() as f64) as usize).or(sorted.last()).copied().unwrap_or(0.0);
        let mean_ms = mean(sorted.iter().copied());
        let errors = known.iter().map(|&(_, predicted, taken)| (predicted - taken).abs());
        let mut by_time = known.clone();
        by_time.sort_by(|a, b| b.2.total_cmp(&a.2));
        let slow = |&(ordinal, predicted_ms, ms): &(u64, f64, f64)| {
            let key = plan.source().key(plan.source().id_at(Ordinal(ordinal))).into_owned();
            SlowSample { key, ms, predicted_ms }
        };
        let by = |numbers: &[u64]| {
            let pairs = known.iter().map(|&(ordinal, _, taken)| (numbers[ordinal as usize] as f64, taken));
            explained_by_size(&pairs.collect::<Vec<_>>())
        };
        let draws: Vec<(Vec<u8>, f64)> =
            known.iter().map(|&(ordinal, _, taken)| (work_hints(plan, epoch, Ordinal(ordinal)), taken)).collect();
        Self {
            samples: known.len(),
            mean_ms,
            median_ms: at(0.5),
            p99_ms: at(0.99),
            slowest_ms: sorted.last().copied().unwrap_or(0.0),
            histogram: histogram(&sorted),
            slowest: by_time.iter().take(slowest).map(slow).collect(),
            // With no measured samples both means are 0, and so is the error.
            prediction_error: mean(errors) / mean_ms.max(f64::MIN_POSITIVE),
            // Bytes explain the cost of pictures, elements that of volumes. The better of the two counts.
            explained_by_size: by(plan.sizes()).max(plan.known_elements().map_or(0.0, by)),
            explained_by_draws: explained_by_groups(draws),
        }
    }
}

fn work_hints(plan: &Plan, epoch: Epoch, ordinal: Ordinal) -> Vec<u8> {
    let request = SampleRequest { id: plan.source().id_at(ordinal), epoch, occurrence: Occurrence(0) };
    (0..plan.ops().len()).map(|number| plan.chain().work_hint(number, request) as u8).collect()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

fn histogram(sorted: &[f64]) -> Vec<Bar> {
    // The histogram is logarithmic. Times below a nanosecond count as one, because log2(0) is -infinity.
    let bar = |ms: f64| (ms.max(1e-6).log2() * BARS_PER_DOUBLING).floor() as i32;
    let mut counts = BTreeMap::new();
    for &ms in sorted {
        *counts.entry(bar(ms)).or_insert(0) += 1;
    }
    let edge = |bar: i32| (f64::from(bar) / BARS_PER_DOUBLING).exp2();
    counts.into_iter().map(|(bar, samples)| Bar { from_ms: edge(bar), to_ms: edge(bar + 1), samples }).collect()
}

/// The squared correlation.
fn explained_by_size(pairs: &[(f64, f64)]) -> f64 {
    let (mean_x, mean_y) = (mean(pairs.iter().map(|pair| pair.0)), mean(pairs.iter().map(|pair| pair.1)));
    let sum = |of: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|&(x, y)| of(x - mean_x, y - mean_y)).sum::<f64>();
    // Pearson's r squared: the fraction of the variance that a straight line explains. 0 if either side is constant.
    let (xx, yy, xy) = (sum(&|x, _| x * x), sum(&|_, y| y * y), sum(&|x, y| x * y));
    if xx > 0.0 && yy > 0.0 { xy * xy / (xx * yy) } else { 0.0 }
}

/// The fraction of the variance between the means of groups.
fn explained_by_groups<K: Ord>(values: Vec<(K, f64)>) -> f64 {
    let overall = mean(values.iter().map(|&(_, value)| value));
    let total: f64 = values.iter().map(|&(_, value)| (value - overall).powi(2)).sum();
    let mut groups = BTreeMap::<K, Vec<f64>>::new();
    for (key, value) in values {
        groups.entry(key).or_default().push(value);
    }
    // Eta squared: the variance between groups divided by the total variance.
    let between = groups.values().map(|group| (mean(group.iter().copied()) - overall).powi(2) * group.len() as f64);
    if total > 0.0 { between.sum::<f64>() / total } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variance_is_explained_by_what_made_it() {
        let by_size: Vec<(f64, f64)> = (0..100).map(|x| (f64::from(x), 3.0 * f64::from(x) + 2.0)).collect();
        assert!((explained_by_size(&by_size) - 1.0).abs() < 1e-9);
        let groups: Vec<(bool, f64)> = (0..100).map(|n| (n % 4 == 0, if n % 4 == 0 { 20.0 } else { 1.0 })).collect();
        assert!((explained_by_groups(groups) - 1.0).abs() < 1e-9);
        let unrelated: Vec<(bool, f64)> = (0..100).map(|n| (n % 2 == 0, f64::from(n / 2))).collect();
        assert!(explained_by_groups(unrelated) < 0.01);
        assert!(explained_by_size(&[]) == 0.0);
    }

    #[test]
    fn bars_hold_all_samples() {
        let bars = histogram(&[0.1, 0.3, 0.3, 5.0, 5.1, 125.0]);
        assert_eq!(bars.iter().map(|bar| bar.samples).sum::<usize>(), 6);
        assert_eq!(bars.last().map(|bar| (bar.from_ms, bar.to_ms, bar.samples)), Some((64.0, 128.0, 1)));
    }
}
