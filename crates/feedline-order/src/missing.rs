//! Which numbers of a share have been passed over, as samples are delivered in any order.
//!
//! Always true: the numbers below the greatest delivered one are delivered or missing, so all that is left is the missing
//! ones and those from there on.

use std::collections::BTreeSet;

use super::Rest;

/// The numbers that were passed over.
#[derive(Clone, Debug, Default)]
pub struct Missing {
    delivered: u64,
    numbers: BTreeSet<u64>,
}

impl Missing {
    /// Goes on after `delivered` samples that left `pending` out.
    pub fn new(delivered: u64, pending: &[u64]) -> Self {
        Self { delivered, numbers: pending.iter().copied().collect() }
    }

    /// Books that a number was delivered.
    pub fn deliver(&mut self, number: u64) {
        let next = self.delivered + self.numbers.len() as u64;
        self.delivered += 1;
        if number >= next {
            self.numbers.extend(next..number);
        } else {
            self.numbers.remove(&number);
        }
    }

    /// The numbers that were passed over, ascending.
    pub fn numbers(&self) -> Vec<u64> {
        self.numbers.iter().copied().collect()
    }

    /// All that is left.
    pub fn rest(&self) -> Rest {
        Rest::new(self.delivered, self.numbers())
            .expect("the numbers are ascending and below the greatest delivered one")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn law_4_the_rest_is_what_was_not_delivered(
            order in Just((0..60_u64).collect::<Vec<_>>()).prop_shuffle(), cut in 0..60_usize,
        ) {
            let mut missing = Missing::default();
            order[..cut].iter().for_each(|&number| missing.deliver(number));
            let course = super::super::Course {
                epoch: super::super::Epoch(0),
                share: super::super::Share::new(60, 0, super::super::Rank::ALONE, 4, false),
                rest: Some(std::sync::Arc::new(missing.rest())),
            };
            let mut left = order[cut..].to_vec();
            left.sort_unstable();
            prop_assert!((cut as u64..60).map(|turn| course.number(turn)).eq(left));
        }
    }
}
