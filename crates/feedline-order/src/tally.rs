//! Measures what an order of delivery changes: the displacement of samples, and the balance of batches.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{ShareIndex, Turn};

/// A sample above this multiple of the mean cost counts as slow in reports.
pub const SLOW: u32 = 2;

/// What the order of delivery changes in an epoch, or in its first part.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct OrderReport {
    pub samples: u64,
    pub max_displacement: u64,
    pub largest_displacement: u64,
    pub mean_displacement: f64,
    pub slow_samples: u64,
    pub slow_per_batch_least: u64,
    pub slow_per_batch_mean: f64,
    pub slow_per_batch_most: u64,
    /// `slow_per_batch_most` if the sampler's order were kept.
    pub slow_per_batch_most_in_order: u64,
}

/// Counts an order of delivery, sample by sample.
#[derive(Debug)]
pub struct Tally {
    batch_size: u64,
    samples: u64,
    displacement: u64,
    largest_displacement: u64,
    slow: u64,
    slow_least: Option<u64>,
    slow_most: u64,
    slow_most_in_order: u64,
    /// Samples and slow samples of the current batch.
    batch: (u64, u64),
    /// The same for incomplete batches in the sampler's order.
    in_order: BTreeMap<u64, (u64, u64)>,
}

impl Tally {
    /// Nothing was delivered yet.
    pub fn new(batch_size: usize) -> Self {
        Self {
            batch_size: batch_size as u64,
            samples: 0,
            displacement: 0,
            largest_displacement: 0,
            slow: 0,
            slow_least: None,
            slow_most: 0,
            slow_most_in_order: 0,
            batch: (0, 0),
            in_order: BTreeMap::new(),
        }
    }

    /// Adds a sample that is delivered at `turn`.
    pub fn add(&mut self, Turn(turn): Turn, ShareIndex(index): ShareIndex, is_slow: bool) {
        let slow = u64::from(is_slow);
        self.samples += 1;
        self.slow += slow;
        self.displacement += turn.abs_diff(index);
        self.largest_displacement = self.largest_displacement.max(turn.abs_diff(index));
        self.batch = (self.batch.0 + 1, self.batch.1 + slow);
        self.slow_most = self.slow_most.max(self.batch.1);
        if self.batch.0 == self.batch_size {
            self.slow_least = Some(self.slow_least.map_or(self.batch.1, |least| least.min(self.batch.1)));
            self.batch = (0, 0);
        }
        let in_order_batch = self.in_order.entry(index / self.batch_size).or_default();
        *in_order_batch = (in_order_batch.0 + 1, in_order_batch.1 + slow);
        self.slow_most_in_order = self.slow_most_in_order.max(in_order_batch.1);
        // A complete batch is not needed any more, so memory stays bounded by the displacement.
        if in_order_batch.0 == self.batch_size {
            self.in_order.remove(&(index / self.batch_size));
        }
    }

    /// What was counted.
    pub fn report(&self, max_displacement: u64) -> OrderReport {
        let batches = self.samples.div_ceil(self.batch_size).max(1);
        let last = (self.batch.0 > 0).then_some(self.batch.1);
        OrderReport {
            samples: self.samples,
            max_displacement,
            largest_displacement: self.largest_displacement,
            mean_displacement: self.displacement as f64 / self.samples.max(1) as f64,
            slow_samples: self.slow,
            slow_per_batch_least: [self.slow_least, last].into_iter().flatten().min().unwrap_or(0),
            slow_per_batch_mean: self.slow as f64 / batches as f64,
            slow_per_batch_most: self.slow_most,
            slow_per_batch_most_in_order: self.slow_most_in_order,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displacement_and_slow_samples_are_counted_as_delivered_and_as_in_order() {
        let mut tally = Tally::new(2);
        // Numbers 0 and 1 are slow and share a batch by the sampler's order.
        for (turn, number) in [2, 0, 3, 1, 4].into_iter().enumerate() {
            tally.add(Turn(turn as u64), ShareIndex(number), number < 2);
        }
        let report = tally.report(9);
        assert_eq!((report.samples, report.largest_displacement, report.max_displacement), (5, 2, 9));
        assert!((report.mean_displacement - 6.0 / 5.0).abs() < 1e-9);
        assert_eq!((report.slow_samples, report.slow_per_batch_least, report.slow_per_batch_most), (2, 0, 1));
        assert_eq!(report.slow_per_batch_most_in_order, 2);
        assert!((report.slow_per_batch_mean - 2.0 / 3.0).abs() < 1e-9);
    }
}
