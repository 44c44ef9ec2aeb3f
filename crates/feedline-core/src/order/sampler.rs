//! Sequences of samples that a user chooses: a list of ids, or draws by weight.
//!
//! In: a rule. Out: for an epoch, the ordinal at each position and how often it came before. The sequence, repeats
//! included, *is* the epoch (law 2). Unlike a permutation it is laid out in memory for one epoch at a time (12 bytes a
//! position), because how often a sample came before cannot be computed for one position alone.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::random::{Purpose, StreamKey, unit};
use super::{Epoch, Occurrence, Seed};

/// The user's rule for the sequence of samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Sampler {
    /// The same sample ids each epoch, in this order.
    List {
        /// Sample ids of the source; may repeat.
        ids: Vec<u64>,
    },
    /// Draws with replacement, in proportion to weights, anew each epoch.
    Weighted {
        /// One weight per sample of the source, in its order.
        weights: Vec<f64>,
        /// Samples per epoch; the source's length if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        num_samples: Option<u64>,
    },
    /// Draws with replacement so that each class is equally likely.
    ClassBalanced {
        /// Samples per epoch; the source's length if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        num_samples: Option<u64>,
    },
}

/// One epoch of a sampler: (ordinal in the source, occurrence) by position.
pub(super) type Drawn = Vec<(u64, Occurrence)>;

/// A fixed sequence of ordinals with occurrences.
pub(super) fn listed(ordinals: impl Iterator<Item = u64>) -> Drawn {
    let mut seen: HashMap<u64, u32> = HashMap::new();
    ordinals
        .map(|ordinal| {
            let count = seen.entry(ordinal).or_default();
            *count += 1;
            (ordinal, Occurrence(*count - 1))
        })
        .collect()
}

/// `len` draws in proportion to the steps of `cumulative`, for one epoch.
pub(super) fn weighted(cumulative: &[f64], len: u64, seed: Seed, epoch: Epoch) -> Drawn {
    let key = StreamKey::new(seed, epoch, Purpose::Sampler);
    let total = cumulative.last().copied().unwrap_or_default();
    listed((0..len).map(|position| {
        let target = unit(key.bits(position, 0, 0)) * total;
        let ordinal = cumulative.partition_point(|&sum| sum <= target);
        ordinal.min(cumulative.len() - 1) as u64
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occurrences_count_earlier_visits_of_the_same_sample() {
        let drawn = listed([4, 2, 4, 4].into_iter());
        assert_eq!(drawn.iter().map(|(_, occurrence)| occurrence.0).collect::<Vec<_>>(), [0, 0, 1, 2]);
    }

    #[test]
    fn draws_follow_the_weights_and_never_take_a_weight_of_zero() {
        let drawn = weighted(&[1.0, 1.0, 4.0], 10_000, Seed(1), Epoch(0));
        let count = |ordinal| drawn.iter().filter(|(drawn, _)| *drawn == ordinal).count();
        assert_eq!(count(1), 0);
        assert!((count(2) as f64 / 10_000.0 - 0.75).abs() < 0.02);
        assert_ne!(drawn, weighted(&[1.0, 1.0, 4.0], 10_000, Seed(1), Epoch(1)));
    }
}
