//! Planned order: slow samples come later, decided by a simulation.
//!
//! In: the cost of each sample of a share, in the sampler's order. Out: the order of delivery, a permutation. It is the order in
//! which a few virtual workers would finish the samples, each taking the next one when it is free. This is a pure function of its
//! arguments, so every machine and every resume gets the same order.
//!
//! Always true: no sample comes more than `max_displacement` places later than in the sampler's order, and none comes earlier by
//! more than the number of virtual workers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Number of virtual workers, whatever the machine has.
const VIRTUAL_WORKERS: usize = 8;

/// The order of delivery of samples `0..costs.len()`.
pub fn planned_order(costs: &[u64], max_displacement: u64) -> Vec<u32> {
    let mut order = Vec::with_capacity(costs.len());
    // Running samples by the time at which they finish. Ties go to the one that started first.
    let mut finishing = BinaryHeap::new();
    let mut running = BTreeMap::new();
    let mut next = 0_usize;
    let mut start =
        |now: u64, finishing: &mut BinaryHeap<Reverse<(u64, usize)>>, running: &mut BTreeMap<usize, u64>| {
            if let Some(&cost) = costs.get(next) {
                let end = now.saturating_add(cost);
                finishing.push(Reverse((end, next)));
                running.insert(next, end);
                next += 1;
            }
        };
    (0..VIRTUAL_WORKERS).for_each(|_| start(0, &mut finishing, &mut running));
    while let Some((&oldest, &oldest_end)) = running.first_key_value() {
        // The oldest running sample has reached its largest displacement, so it is delivered although it has not finished.
        let is_due = order.len() as u64 >= oldest as u64 + max_displacement;
        let (number, end) = if is_due {
            (oldest, oldest_end)
        } else {
            // Samples that were taken out of turn are still in the heap.
            let Some(Reverse((end, number))) = finishing.pop() else { break };
            if !running.contains_key(&number) {
                continue;
            }
            (number, end)
        };
        running.remove(&number);
        order.push(number as u32);
        // The worker of a delivered sample becomes free when that sample ends, also if it was delivered before.
        start(end, &mut finishing, &mut running);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_costs_keep_the_order_and_a_slow_sample_comes_later() {
        assert!(planned_order(&[5; 100], 50).into_iter().eq(0..100));
        let mut costs = vec![5; 100];
        costs[10] = 50;
        let order = planned_order(&costs, 1000);
        let place = order.iter().position(|&number| number == 10).unwrap();
        assert!((60..=90).contains(&place), "place {place}: seven others do ten samples each meanwhile");
        let others: Vec<u32> = order.into_iter().filter(|&number| number != 10).collect();
        assert!(others.is_sorted());
    }

    proptest! {
        #[test]
        fn law_2_every_sample_comes_once_and_displacement_is_bounded(
            costs in prop::collection::vec(prop_oneof![1..10_u64, 1..2000_u64], 0..400), bound in 0..64_u64,
        ) {
            let order = planned_order(&costs, bound);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert!(sorted.into_iter().eq(0..costs.len() as u32));
            for (place, &number) in order.iter().enumerate() {
                let displacement = place as i64 - i64::from(number);
                prop_assert!(displacement <= bound as i64, "{number} at {place}, bound {bound}");
                prop_assert!(-displacement <= VIRTUAL_WORKERS as i64, "{number} at {place}");
            }
        }
    }
}
