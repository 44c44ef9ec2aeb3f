//! User-defined sequences of samples: a list of ids, or weighted draws.
//!
//! In: a rule. Out: for an epoch, the ordinal at each position and its occurrence. The sequence, repeats included, *is* the epoch
//! (law 2). Unlike a permutation it is kept in memory, one epoch at a time (16 bytes per position), because an occurrence cannot be
//! computed for one position alone.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::random::{Purpose, StreamKey, below, unit};
use super::{Epoch, Occurrence, Ordinal, Seed};

/// The user's rule for the sequence of samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Sampler {
    /// The same samples each epoch, in this order.
    List {
        /// Indices of the source's samples. They may repeat.
        indices: Vec<u64>,
    },
    /// Draws with replacement in proportion to weights, different in each epoch.
    Weighted {
        /// One weight per sample of the source, in source order.
        weights: Vec<f64>,
        /// Samples per epoch. By default the length of the source.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        num_samples: Option<u64>,
    },
    /// Draws with replacement so that each class is equally likely.
    ClassBalanced {
        /// Samples per epoch. By default the length of the source.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        num_samples: Option<u64>,
    },
}

/// One epoch of a sampler: (ordinal in the source, occurrence) by position.
pub(super) type Drawn = Vec<(Ordinal, Occurrence)>;

/// Sources up to this length use one counter per sample.
const MAX_COUNTERS: u64 = 1 << 24;

/// Adds occurrences to a sequence of ordinals below `len`.
pub(super) fn counted(ordinals: impl Iterator<Item = Ordinal>, len: u64) -> Drawn {
    let occurrence = |count: &mut u32| {
        *count += 1;
        Occurrence(*count - 1)
    };
    if len > MAX_COUNTERS {
        // A short list over a very long source uses a map instead.
        let mut seen: HashMap<Ordinal, u32> = HashMap::new();
        return ordinals.map(|ordinal| (ordinal, occurrence(seen.entry(ordinal).or_default()))).collect();
    }
    let mut seen = vec![0u32; len as usize];
    ordinals.map(|ordinal| (ordinal, occurrence(&mut seen[ordinal.0 as usize]))).collect()
}

/// Weighted draws in constant time: Vose's alias method. Each place gives its own number with some probability, otherwise one other
/// number.
#[derive(Debug)]
pub(super) struct AliasTable(Vec<(f64, u64)>);

impl AliasTable {
    /// Builds a table. The weights must be finite, not negative and not all zero.
    pub(crate) fn new(weights: &[f64]) -> Self {
        // Scaled so that the mean is 1: each place holds a probability of exactly 1 in total.
        let scale = weights.len() as f64 / weights.iter().sum::<f64>();
        let mut table: Vec<(f64, u64)> =
            weights.iter().enumerate().map(|(number, weight)| (weight * scale, number as u64)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..table.len()).partition(|&n| table[n].0 < 1.0);
        while let (Some(low), Some(&high)) = (small.pop(), large.last()) {
            // The small entry is filled up to 1 with a part of the large one, which keeps the rest.
            table[low].1 = high as u64;
            table[high].0 -= 1.0 - table[low].0;
            if table[high].0 < 1.0 {
                large.pop();
                small.push(high);
            }
        }
        // The remaining entries differ from 1 only by rounding.
        for number in small.into_iter().chain(large).filter(|&n| weights[n] > 0.0) {
            table[number].0 = 1.0;
        }
        Self(table)
    }

    /// Number of weights.
    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// `len` draws for one epoch.
    pub(crate) fn draw(&self, len: u64, seed: Seed, epoch: Epoch) -> Drawn {
        let key = StreamKey::new(seed, epoch, Purpose::Sampler);
        let one = |position| {
            // Draw 0 chooses the place, draw 1 decides between its own number and the other.
            let place = below(key.bits(position, 0, 0), self.len());
            let (probability, other) = self.0[place as usize];
            if unit(key.bits(position, 0, 1)) < probability { place } else { other }
        };
        counted((0..len).map(one).map(Ordinal), self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occurrences_count_earlier_visits_of_the_same_sample() {
        for len in [5, 1 << 48] {
            let drawn = counted([4, 2, 4, 4].map(Ordinal).into_iter(), len);
            assert_eq!(drawn.iter().map(|(_, occurrence)| occurrence.0).collect::<Vec<_>>(), [0, 0, 1, 2]);
        }
    }

    #[test]
    fn draws_follow_the_weights_and_never_take_a_weight_of_zero() {
        let weights = [1.0, 0.0, 3.0, 0.0, 12.0, 0.5];
        let table = AliasTable::new(&weights);
        let drawn = table.draw(40_000, Seed(1), Epoch(0));
        for (ordinal, weight) in weights.into_iter().enumerate() {
            let count = drawn.iter().filter(|(drawn, _)| drawn.0 == ordinal as u64).count();
            let (share, expected) = (count as f64 / 40_000.0, weight / 16.5);
            assert!((share - expected).abs() < 0.01, "{ordinal}: {share} instead of {expected}");
            assert!(weight > 0.0 || count == 0, "{ordinal} has no weight");
        }
        assert_ne!(drawn, table.draw(40_000, Seed(1), Epoch(1)));
    }
}
