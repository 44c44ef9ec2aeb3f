//! Finds periodic stalls.
//!
//! In: the times of consecutive batches. Out: the period of slow batches, if there is one. With W workers that each prepare whole
//! batches, every W-th batch is slow. So a period means that the workers are the bottleneck.
//!
//! Times are divided into slow and fast ones at their widest gap. For each period, the phases that are nearly always slow are
//! found. The probability that as many slow batches fall there in a shuffled log is that of drawing without replacement, times the
//! number of tested choices. Always true: a reported period would be rare by chance.

use serde::Serialize;

/// The longest period to test.
const MAX_PERIOD: usize = 64;
/// Least ratio between slow and fast batches.
const MIN_CONTRAST: f64 = 2.0;
/// Times below this fraction of the mean are all fast: their ratio means nothing.
const NEGLIGIBLE_SHARE: f64 = 0.2;
/// The mean is over this fraction of the times, so that a few slow epoch starts do not count.
const TRIMMED_SHARE: f64 = 0.95;
/// Least fraction of a phase that must be slow, and of slow batches that must be in such phases.
const MIN_PURITY: f64 = 0.7;
/// Upper limit of the probability by chance. A log of a dozen batches cannot reach more than the latter.
const MAX_CHANCE: f64 = 1e-4;
const MAX_CHANCE_SHORT: f64 = 0.1;
const SHORT_LOG: usize = 16;
/// Least number of observed periods.
const MIN_ROUNDS: usize = 3;

/// Slow batches at regular intervals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Period {
    /// Batches from one slow one to the next.
    pub batches: usize,
    /// Median milliseconds of a slow batch.
    pub slow_ms: f64,
    /// Median milliseconds of the other batches.
    pub quick_ms: f64,
    /// The probability of such a pattern by chance.
    pub chance: f64,
}

/// The period of a log, if it has one.
pub(crate) fn period(times_ms: &[f64]) -> Option<Period> {
    let split = Split::of(times_ms)?;
    let found = (2..=MAX_PERIOD).filter_map(|batches| Some((batches, chance(&split.is_slow, batches)?)));
    let (batches, chance) = found.min_by(|a, b| a.1.total_cmp(&b.1))?;
    let most = if times_ms.len() < SHORT_LOG { MAX_CHANCE_SHORT } else { MAX_CHANCE };
    (chance <= most).then_some(Period { batches, slow_ms: split.slow_ms, quick_ms: split.quick_ms, chance })
}

/// A log divided into slow and quick batches.
#[derive(Clone, Debug)]
pub(super) struct Split {
    pub is_slow: Vec<bool>,
    /// Medians.
    pub slow_ms: f64,
    pub quick_ms: f64,
}

impl Split {
    /// Divides where the logarithms of the times are separated best. `None` if they are too similar.
    pub(super) fn of(times_ms: &[f64]) -> Option<Self> {
        let mut sorted = times_ms.to_vec();
        sorted.sort_by(f64::total_cmp);
        let most = &sorted[..(sorted.len() as f64 * TRIMMED_SHARE).ceil() as usize];
        // Times below this limit count as equal, so that the logarithm does not separate 1 from 10 microseconds.
        let least = (NEGLIGIBLE_SHARE * most.iter().sum::<f64>() / most.len().max(1) as f64).max(f64::MIN_POSITIVE);
        let logarithms: Vec<f64> = sorted.iter().map(|time| time.max(least).ln()).collect();
        let (count, sum) = (sorted.len() as f64, logarithms.iter().sum::<f64>());
        let (mut below, mut best) = (0.0, (0.0, 0));
        for number in 1..sorted.len() {
            below += logarithms[number - 1];
            let (left, right) = (number as f64, count - number as f64);
            // Otsu's method: the split with the largest variance between the two groups, here of logarithms.
            let apart = below / left - (sum - below) / right;
            let between = left * right * apart * apart;
            // Equal times must not be separated, otherwise the limit would be ambiguous.
            if between > best.0 && logarithms[number] > logarithms[number - 1] {
                best = (between, number);
            }
        }
        let limit = *sorted.get(best.1).filter(|_| best.1 > 0)?;
        let (quick_ms, slow_ms) = (median(&sorted[..best.1]), median(&sorted[best.1..]));
        let is_slow = times_ms.iter().map(|time| *time >= limit).collect();
        (slow_ms >= MIN_CONTRAST * quick_ms).then_some(Self { is_slow, slow_ms, quick_ms })
    }
}

/// The median of sorted numbers.
pub(super) fn median(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[len / 2],
        len => sorted[len / 2 - 1].midpoint(sorted[len / 2]),
    }
}

/// The probability that so many slow batches fall into so few phases by chance. `None` if they hardly do.
fn chance(is_slow: &[bool], period: usize) -> Option<f64> {
    let count = is_slow.len();
    // One less is enough: the pattern may start and end with a slow batch.
    if count + 1 < MIN_ROUNDS * period {
        return None;
    }
    let slow = is_slow.iter().filter(|slow| **slow).count();
    let (mut members, mut hits, mut phases) = (0, 0, 0);
    for phase in 0..period {
        let of_phase = is_slow.iter().skip(phase).step_by(period);
        let (all, hit) = of_phase.fold((0, 0), |(all, hit), slow| (all + 1, hit + usize::from(*slow)));
        // A phase counts as slow if most of its batches are slow.
        if hit as f64 >= MIN_PURITY * f64::from(all) {
            (members, hits, phases) = (members + all as usize, hits + hit, phases + 1);
        }
    }
    // With all phases slow there is no period, only slow batches.
    if phases == 0 || phases == period || (hits as f64) < MIN_PURITY * slow as f64 {
        return None;
    }
    // Bonferroni correction: the number of phase sets and periods that were tried.
    let choices = (ln_choose(period, phases)).exp() * MAX_PERIOD.min(count / MIN_ROUNDS) as f64;
    Some((ln_tail(count, slow, members, hits).exp() * choices).min(1.0))
}

/// The logarithm of the probability that at least `hits` of `slow`, drawn out of `count`, are among `members`.
fn ln_tail(count: usize, slow: usize, members: usize, hits: usize) -> f64 {
    let all = ln_choose(count, slow);
    // The tail of the hypergeometric distribution.
    let terms = (hits..=members.min(slow)).filter(|hit| slow - hit <= count - members);
    let terms: Vec<f64> =
        terms.map(|hit| ln_choose(members, hit) + ln_choose(count - members, slow - hit) - all).collect();
    let largest = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // Log-sum-exp: the largest term is factored out, so that no power underflows.
    largest + terms.iter().map(|term| (term - largest).exp()).sum::<f64>().ln()
}

fn ln_choose(n: usize, k: usize) -> f64 {
    ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k)
}

/// By the product up to 32, by Stirling's series above.
fn ln_factorial(number: usize) -> f64 {
    if number <= 32 {
        return (2..=number).map(|factor| (factor as f64).ln()).sum();
    }
    let n = number as f64;
    n * n.ln() - n + 0.5 * (std::f64::consts::TAU * n).ln() + 1.0 / (12.0 * n) - 1.0 / (360.0 * n.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_order::random::{Purpose, StreamKey};
    use feedline_order::{Epoch, Permutation, Seed};

    /// The log of a job with four workers, from a report on what bounds training.
    const FOUR_WORKERS: [f64; 11] = [1040.0, 43.0, 89.0, 29.0, 1025.0, 37.0, 23.0, 90.0, 1053.0, 31.0, 21.0];

    /// Waits of a job with four torch workers that wait, on a machine with much else to do.
    const BUSY: [[f64; 31]; 2] = [
        [
            60.0, 0.0, 1.0, 276.0, 52.0, 1.0, 23.0, 336.0, 24.0, 40.0, 20.0, 348.0, 29.0, 0.0, 2.0, 344.0, 33.0, 0.0,
            29.0, 326.0, 28.0, 0.0, 30.0, 350.0, 4.0, 0.0, 47.0, 330.0, 37.0, 0.0, 24.0,
        ],
        [
            5.0, 7.0, 45.0, 313.0, 0.0, 27.0, 29.0, 325.0, 1.0, 1.0, 82.0, 328.0, 29.0, 14.0, 27.0, 312.0, 4.0, 9.0,
            48.0, 341.0, 0.0, 30.0, 47.0, 320.0, 20.0, 20.0, 43.0, 331.0, 3.0, 1.0, 46.0,
        ],
    ];

    /// A number from 0 to 1.
    fn noise(number: usize, seed: u64) -> f64 {
        let mixed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed.wrapping_mul(0xd6e8_feb8_6659_fd93);
        (xxhash_rust::xxh3::xxh3_64(&mixed.to_le_bytes()) >> 11) as f64 / (1_u64 << 53) as f64
    }

    #[test]
    fn the_log_of_four_workers_has_period_four() {
        let found = period(&FOUR_WORKERS).unwrap();
        assert_eq!((found.batches, found.slow_ms), (4, 1040.0));
    }

    #[test]
    fn periods_from_2_to_16_are_found_whatever_the_jitter() {
        for batches in 2..=16 {
            for (seed, jitter) in [(1, 0.1), (2, 0.3), (3, 0.5)] {
                let time = |number: usize| {
                    let usual = if number.is_multiple_of(batches) { 400.0 } else { 40.0 };
                    usual * (1.0 + jitter * (2.0 * noise(number, seed) - 1.0))
                };
                let log: Vec<f64> = (0..(8 * batches).max(24)).map(time).collect();
                let found = period(&log).unwrap_or_else(|| panic!("period {batches}, jitter {jitter}"));
                assert_eq!(found.batches, batches, "jitter {jitter}");
            }
        }
    }

    #[test]
    fn waits_that_hardly_count_are_alike() {
        for log in BUSY {
            let found = period(&log).unwrap();
            assert_eq!((found.batches, found.slow_ms > 300.0, found.quick_ms < 30.0), (4, true, true), "{found:?}");
        }
    }

    #[test]
    fn epochs_that_begin_slowly_do_not_hide_a_period() {
        let start = |number: usize| number.is_multiple_of(25);
        let time = |number: usize| if number % 4 == 2 { 200.0 } else { 20.0 };
        let log: Vec<f64> = (0..100).map(|number| if start(number) { 5000.0 } else { time(number) }).collect();
        assert_eq!(period(&log).unwrap().batches, 4);
    }

    #[test]
    fn a_slow_batch_here_and_there_does_not_hide_a_period() {
        let mut log: Vec<f64> = (0..120).map(|number| if number % 6 == 2 { 300.0 } else { 30.0 }).collect();
        (log[7], log[50], log[14]) = (900.0, 250.0, 30.0);
        assert_eq!(period(&log).unwrap().batches, 6);
    }

    #[test]
    fn none_is_claimed_of_shuffled_logs() {
        for seed in 0..1000_u64 {
            let (batches, rounds) = (2 + seed as usize % 15, 12 + seed as usize % 30);
            let count = batches * rounds;
            let order = Permutation::new(StreamKey::new(Seed(seed), Epoch(0), Purpose::Split), count as u64);
            let time = |place: u64| if (place as usize).is_multiple_of(batches) { 400.0 } else { 40.0 };
            let jitter = |number: usize| 0.7 + 0.6 * noise(number, seed);
            let log: Vec<f64> = (0..count).map(|number| time(order.at(number as u64)) * jitter(number)).collect();
            assert_eq!(period(&log), None, "seed {seed}, {count} batches");
        }
    }

    #[test]
    fn what_is_too_short_or_too_even_has_none() {
        assert_eq!(period(&[]), None);
        assert_eq!(period(&[5.0]), None);
        assert_eq!(period(&[10.0, 100.0, 10.0, 100.0]), None);
        assert_eq!(period(&vec![20.0; 100]), None);
        let even: Vec<f64> = (0..100).map(|number| if number % 4 == 0 { 25.0 } else { 20.0 }).collect();
        assert_eq!(period(&even), None, "a fifth more is no stall");
    }
}
