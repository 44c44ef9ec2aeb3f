//! Tests the arithmetic of ADR 36: positions, rows, blocks and places of batches.
//!
//! The product has no packed sequences yet. The model here states what they must satisfy.

use std::collections::HashSet;

use feedline_order::random::{Purpose, StreamKey};
use feedline_order::{Epoch, Permutation, Rank, Seed, Share, ShareIndex};
use proptest::prelude::*;

/// The place of a batch is that of its first slot, before padding wraps around.
fn place_of_batch(offset: u64, rank: Rank, batch: u64, batch_size: u64) -> u64 {
    offset + batch * batch_size * u64::from(rank.world) + u64::from(rank.rank)
}

proptest! {
    #[test]
    fn law_4_places_of_batches_are_unique_in_an_epoch_also_if_the_world_changes_on_the_way(
        len in 1..600_u64, worlds in prop::collection::vec((1..5_u32, 1..9_usize, 0..6_u64), 1..5), drop_last: bool,
    ) {
        let (mut places, mut offset) = (HashSet::new(), 0);
        let last = worlds.len() - 1;
        for (number, &(world, batch_size, stop_after)) in worlds.iter().enumerate() {
            let share = |rank| Share::new(len, offset, Rank { rank, world }, batch_size, drop_last);
            let batches = if number == last { share(0).batches() } else { share(0).batches().min(stop_after) };
            for rank in (0..world).map(|rank| Rank { rank, world }) {
                for batch in 0..batches {
                    let place = place_of_batch(offset, rank, batch, batch_size as u64);
                    prop_assert!(places.insert(place), "two batches at {}", place);
                    let first = share(rank.rank).place(ShareIndex(batch * batch_size as u64));
                    prop_assert_eq!(first.position.0, place % len, "the place is that of the first slot");
                }
            }
            offset = share(0).offset_after(batches);
        }
    }
}

/// Rows of fixed capacity, packed block by block in the order of an epoch.
struct PackedRows<'a> {
    order: &'a dyn Fn(u64) -> u64,
    lengths: &'a [u64],
    block: u64,
    capacity: u64,
    /// Number of rows before each block, and in total.
    before: Vec<u64>,
}

impl<'a> PackedRows<'a> {
    fn new(order: &'a dyn Fn(u64) -> u64, lengths: &'a [u64], block: u64, capacity: u64) -> Self {
        let mut rows = Self { order, lengths, block, capacity, before: vec![0] };
        for number in 0..(lengths.len() as u64).div_ceil(block) {
            rows.before.push(rows.before[number as usize] + rows.of_block(number).len() as u64);
        }
        rows
    }

    /// The rows of a block: samples in order, with a new row if one does not fit. It uses only the lengths of its own samples.
    fn of_block(&self, number: u64) -> Vec<Vec<u64>> {
        let (mut rows, mut free) = (Vec::<Vec<u64>>::new(), 0);
        for place in number * self.block..((number + 1) * self.block).min(self.lengths.len() as u64) {
            let sample = (self.order)(place);
            let length = self.lengths[sample as usize].min(self.capacity);
            if rows.is_empty() || length > free {
                rows.push(Vec::new());
                free = self.capacity;
            }
            free -= length;
            rows.last_mut().expect("a row was begun").push(sample);
        }
        rows
    }

    /// The samples of the row at a position. All come from one block.
    fn at(&self, position: u64) -> Vec<u64> {
        let block = self.before.partition_point(|before| *before <= position) - 1;
        self.of_block(block as u64).swap_remove((position - self.before[block]) as usize)
    }
}

proptest! {
    #[test]
    fn law_2_packed_rows_hold_each_sample_once_and_ranks_divide_rows_as_they_divide_samples(
        lengths in prop::collection::vec(1..40_u64, 1..300), block in 1..50_u64, seed: u64, world in 1..4_u32,
    ) {
        let key = StreamKey::new(Seed(seed), Epoch(2), Purpose::Shuffle);
        let permutation = Permutation::new(key, lengths.len() as u64);
        let order = |place| permutation.at(place);
        let rows = PackedRows::new(&order, &lengths, block, 64);
        let len = *rows.before.last().unwrap();
        let mut seen = vec![0; lengths.len()];
        for rank in (0..world).map(|rank| Rank { rank, world }) {
            let share = Share::new(len, 0, rank, 4, false);
            for number in 0..share.samples() {
                let place = share.place(ShareIndex(number));
                let row = rows.at(place.position.0);
                prop_assert!(row.iter().map(|sample| lengths[*sample as usize]).sum::<u64>() <= 64);
                if !place.is_padding {
                    for sample in row {
                        seen[sample as usize] += 1;
                    }
                }
            }
        }
        prop_assert!(seen.iter().all(|count| *count == 1));
    }
}
