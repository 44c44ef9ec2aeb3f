//! Tracks which samples of a share were skipped while samples are delivered in any order.
//!
//! Always true: every sample below the greatest delivered index is delivered or missing. So the missing samples, and all samples
//! after that index, are left.

use std::collections::BTreeSet;

use super::{Remaining, ShareIndex};

/// The skipped samples.
#[derive(Clone, Debug, Default)]
pub struct Missing {
    delivered: u64,
    indices: BTreeSet<ShareIndex>,
}

impl Missing {
    /// Continues after `delivered` samples that skipped `pending`.
    pub fn new(delivered: u64, pending: &[ShareIndex]) -> Self {
        Self { delivered, indices: pending.iter().copied().collect() }
    }

    /// Records a delivered sample.
    pub fn deliver(&mut self, index: ShareIndex) {
        // The first index that is neither delivered nor missing.
        let next = self.delivered + self.indices.len() as u64;
        self.delivered += 1;
        if index.0 >= next {
            // Everything between the old and the new greatest index was skipped.
            self.indices.extend((next..index.0).map(ShareIndex));
        } else {
            self.indices.remove(&index);
        }
    }

    /// The skipped samples, ascending.
    pub fn indices(&self) -> Vec<ShareIndex> {
        self.indices.iter().copied().collect()
    }

    /// Everything that is left.
    pub fn rest(&self) -> Remaining {
        Remaining::new(self.delivered, self.indices())
            .expect("the indices are ascending and below the greatest delivered one")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn law_4_the_remaining_samples_are_those_that_were_not_delivered(
            order in Just((0..60_u64).collect::<Vec<_>>()).prop_shuffle(), cut in 0..60_usize,
        ) {
            let mut missing = Missing::default();
            order[..cut].iter().for_each(|&index| missing.deliver(ShareIndex(index)));
            let epoch_path = super::super::EpochPath {
                epoch: super::super::Epoch(0),
                share: super::super::Share::new(60, 0, super::super::Rank::ALONE, 4, false),
                rest: Some(std::sync::Arc::new(missing.rest())),
            };
            let mut left = order[cut..].to_vec();
            left.sort_unstable();
            prop_assert!((cut as u64..60).map(|turn| epoch_path.index_at(super::super::Turn(turn)).0).eq(left));
        }
    }
}
