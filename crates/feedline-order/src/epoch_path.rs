//! One rank's path through one epoch: which sample of its share comes at which turn.
//!
//! In: a turn, counted from the start of the epoch. Out: a [`ShareIndex`], the sample's place in the share by the sampler's order.
//! Both numbers are equal, unless the epoch started in another order of delivery. Then the samples that were skipped come first.

use std::sync::Arc;

use super::{Epoch, Share, ShareIndex, Turn};

/// What is left of a share after `turns` samples were delivered in another order than the sampler's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remaining {
    turns: u64,
    /// Undelivered samples below the greatest delivered index, ascending.
    pending: Vec<ShareIndex>,
}

impl Remaining {
    /// Returns `None` if `turns` delivered samples cannot have skipped `pending`.
    pub fn new(turns: u64, pending: Vec<ShareIndex>) -> Option<Self> {
        let is_ascending = pending.is_sorted_by(|earlier, later| earlier < later);
        // All samples below `next` are delivered or pending. No sample from `next` on is delivered.
        let next = turns.checked_add(pending.len() as u64)?;
        let is_below = pending.last().is_none_or(|&last| last.0 < next);
        (is_ascending && is_below).then_some(Self { turns, pending })
    }

    /// The sample at `turn`, if the remaining samples come in the sampler's order.
    fn index_at(&self, turn: Turn) -> ShareIndex {
        let nth = usize::try_from(turn.0.saturating_sub(self.turns)).unwrap_or(usize::MAX);
        // Pending samples come first. After them, turn and index agree again: `turns + pending.len()` samples lie below the next
        // index.
        self.pending.get(nth).copied().unwrap_or(ShareIndex(turn.0))
    }

    /// The samples that are still pending at `turn`, if the remaining samples come in the sampler's order.
    pub fn pending_at(&self, turn: Turn) -> &[ShareIndex] {
        let delivered = usize::try_from(turn.0.saturating_sub(self.turns)).unwrap_or(usize::MAX);
        self.pending.get(delivered..).unwrap_or_default()
    }
}

/// One rank's path through one epoch.
#[derive(Clone, Debug)]
pub struct EpochPath {
    /// The epoch.
    pub epoch: Epoch,
    /// The rank's share of the epoch.
    pub share: Share,
    /// What was left when the order of delivery changed.
    pub rest: Option<Arc<Remaining>>,
}

impl EpochPath {
    /// The sample that comes at `turn` in the sampler's order.
    pub fn index_at(&self, turn: Turn) -> ShareIndex {
        self.rest.as_ref().map_or(ShareIndex(turn.0), |rest| rest.index_at(turn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_samples_come_first_and_then_the_samplers_order_continues() {
        // Delivered: 0 1 3 4 6 7.
        let pending = [2, 5].map(ShareIndex);
        let rest = Remaining::new(6, pending.to_vec()).unwrap();
        assert!((6..11).map(|turn| rest.index_at(Turn(turn)).0).eq([2, 5, 8, 9, 10]));
        let left = [6, 7, 9].map(|turn| rest.pending_at(Turn(turn)));
        assert_eq!(left, [&pending[..], &pending[1..], &[][..]]);
    }

    #[test]
    fn law_2_a_list_that_would_repeat_or_lose_samples_is_refused() {
        for (turns, pending) in [(6, vec![5, 2]), (6, vec![2, 2]), (6, vec![8]), (0, vec![1]), (u64::MAX, vec![1_u64])]
        {
            assert!(
                Remaining::new(turns, pending.iter().copied().map(ShareIndex).collect()).is_none(),
                "{turns} {pending:?}"
            );
        }
        assert!(Remaining::new(0, vec![]).is_some());
    }
}
