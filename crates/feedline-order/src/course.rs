//! One rank's way through one epoch: which sample of its share has which turn.
//!
//! In: a turn, counted from the epoch's beginning. Out: a *number*, the sample's place in the share by the sampler's order.
//! The two are the same, unless the epoch was begun in another order of delivery: then come first the numbers that this had
//! passed over.

use std::sync::Arc;

use super::{Epoch, Share};

/// What of a share is left once `turns` samples were delivered in another order than the sampler's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    turns: u64,
    /// Numbers below the greatest delivered one that were not delivered, ascending.
    pending: Vec<u64>,
}

impl Rest {
    /// What is left; `None` if `pending` cannot be what `turns` delivered samples left out.
    pub fn new(turns: u64, pending: Vec<u64>) -> Option<Self> {
        let is_ascending = pending.is_sorted_by(|earlier, later| earlier < later);
        // Numbers from here on are not delivered, and it is just those below that are delivered or pending.
        let next = turns.checked_add(pending.len() as u64)?;
        let is_below = pending.last().is_none_or(|&last| last < next);
        (is_ascending && is_below).then_some(Self { turns, pending })
    }

    /// The number that comes at `turn`, if the rest is delivered in the sampler's order.
    fn number(&self, turn: u64) -> u64 {
        let nth = usize::try_from(turn.saturating_sub(self.turns)).unwrap_or(usize::MAX);
        self.pending.get(nth).copied().unwrap_or(turn)
    }

    /// The numbers that are still left out, if the rest is delivered in the sampler's order up to `turn`.
    pub fn pending_at(&self, turn: u64) -> &[u64] {
        let delivered = usize::try_from(turn.saturating_sub(self.turns)).unwrap_or(usize::MAX);
        self.pending.get(delivered..).unwrap_or_default()
    }
}

/// One rank's way through one epoch.
#[derive(Clone, Debug)]
pub struct Course {
    /// The epoch.
    pub epoch: Epoch,
    /// The rank's share of it.
    pub share: Share,
    /// What was left where the order of delivery changed.
    pub rest: Option<Arc<Rest>>,
}

impl Course {
    /// The number of the sample that comes at `turn` in the sampler's order.
    pub fn number(&self, turn: u64) -> u64 {
        self.rest.as_ref().map_or(turn, |rest| rest.number(turn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_passed_over_comes_first_and_then_the_sampler_goes_on() {
        // Delivered: 0 1 3 4 6 7.
        let rest = Rest::new(6, vec![2, 5]).unwrap();
        assert!((6..11).map(|turn| rest.number(turn)).eq([2, 5, 8, 9, 10]));
        assert_eq!((rest.pending_at(6), rest.pending_at(7), rest.pending_at(9)), (&[2, 5][..], &[5][..], &[][..]));
    }

    #[test]
    fn law_2_a_list_that_would_repeat_or_lose_samples_is_refused() {
        for (turns, pending) in [(6, vec![5, 2]), (6, vec![2, 2]), (6, vec![8]), (0, vec![1]), (u64::MAX, vec![1])] {
            assert!(Rest::new(turns, pending.clone()).is_none(), "{turns} {pending:?}");
        }
        assert!(Rest::new(0, vec![]).is_some());
    }
}
