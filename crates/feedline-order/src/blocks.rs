//! Blocks of samples that are stored next to each other, and their sequence in an epoch.
//!
//! In: the number of samples in each object of a source, and a block size in bytes. Out: blocks of about that size, none across
//! objects. In an epoch the blocks follow each other in an order that depends on the key.
//!
//! Always true: every ordinal of the source occurs once in an epoch's sequence.

use xxhash_rust::xxh3::xxh3_128;

use super::random::StreamKey;
use super::{Ordinal, Permutation};

/// Neighbouring samples in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Number of samples.
    pub samples: u64,
    /// Bytes of the samples and of the gaps between them.
    pub bytes: u64,
}

/// All samples of a source in blocks, in source order.
#[derive(Debug)]
pub struct Blocks {
    /// The first ordinal of each block, then the number of samples.
    starts: Vec<u64>,
    bytes: u64,
}

impl Blocks {
    /// Divides objects into blocks of about `block_bytes`.
    pub fn cut(objects: &[Block], block_bytes: u64) -> Self {
        let mut starts = vec![0];
        for Block { samples, bytes } in objects {
            let first = starts.last().copied().unwrap_or_default();
            // At most one piece per sample, and at least one even for an empty object. `dedup` removes the empty ones.
            let pieces = bytes.div_ceil(block_bytes.max(1)).clamp(1, (*samples).max(1));
            // Boundaries at rounded multiples of samples / pieces, so piece sizes differ by at most one sample. In 128 bits,
            // since the product can exceed 64.
            let end = |piece: u64| first + (u128::from(*samples) * u128::from(piece) / u128::from(pieces)) as u64;
            starts.extend((1..=pieces).map(end));
        }
        starts.dedup();
        Self { starts, bytes: objects.iter().map(|block| block.bytes).sum() }
    }

    /// Number of samples in all blocks.
    pub fn samples(&self) -> u64 {
        self.starts.last().copied().unwrap_or_default()
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Average bytes per sample.
    pub fn sample_bytes(&self) -> u64 {
        self.bytes.checked_div(self.samples()).unwrap_or_default().max(1)
    }

    /// A hash of the starts of the blocks and their bytes.
    pub fn hash(&self) -> u128 {
        let numbers: Vec<u8> =
            self.starts.iter().chain([&self.bytes]).flat_map(|number| number.to_le_bytes()).collect();
        xxh3_128(&numbers)
    }

    /// The blocks as one sequence, in the order of `key`.
    pub(crate) fn shuffled(&self, key: StreamKey) -> ShuffledBlocks {
        let order = Permutation::new(key, self.len() as u64);
        let (mut firsts, mut ends, mut end) = (Vec::with_capacity(self.len()), Vec::with_capacity(self.len()), 0);
        for place in 0..self.len() as u64 {
            let block = order.at(place) as usize;
            firsts.push(self.starts[block]);
            end += self.starts[block + 1] - self.starts[block];
            ends.push(end);
        }
        ShuffledBlocks { firsts, ends }
    }
}

/// The blocks of an epoch as one sequence.
#[derive(Debug)]
pub(crate) struct ShuffledBlocks {
    /// The first ordinal of each block, in the order of the epoch.
    firsts: Vec<u64>,
    /// The end of each block in the sequence.
    ends: Vec<u64>,
}

impl ShuffledBlocks {
    /// The ordinal at `place` of the sequence.
    pub(crate) fn ordinal_at(&self, place: u64) -> Ordinal {
        // Binary search for the first block that ends after the place.
        let block = self.ends.partition_point(|&end| end <= place);
        let start = if block == 0 { 0 } else { self.ends[block - 1] };
        Ordinal(self.firsts[block] + (place - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;
    use crate::{Epoch, Seed};

    fn key(epoch: u64) -> StreamKey {
        StreamKey::new(Seed(3), Epoch(epoch), Purpose::Blocks)
    }

    fn block(samples: u64, bytes: u64) -> Block {
        Block { samples, bytes }
    }

    #[test]
    fn blocks_have_about_the_requested_length_and_none_crosses_objects() {
        let blocks = Blocks::cut(&[block(10, 1000), block(0, 900), block(3, 90), block(2, 5000)], 250);
        assert_eq!(blocks.starts, [0, 2, 5, 7, 10, 13, 14, 15]);
        assert_eq!((blocks.samples(), blocks.len(), blocks.sample_bytes()), (15, 7, 6990 / 15));
    }

    #[test]
    fn law_2_every_ordinal_stands_at_one_place_and_blocks_stay_whole() {
        for (objects, bytes) in [(vec![block(100, 100)], 7), (vec![block(5, 5), block(1, 9), block(64, 64)], 16)] {
            let blocks = Blocks::cut(&objects, bytes);
            let epoch = |number| {
                let shuffled = blocks.shuffled(key(number));
                (0..blocks.samples()).map(|place| shuffled.ordinal_at(place).0).collect::<Vec<_>>()
            };
            let seams = epoch(0).windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
            assert!(seams < blocks.len(), "{seams} seams of {} blocks", blocks.len());
            let mut sorted = epoch(0);
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..blocks.samples()));
            assert_ne!(epoch(0), epoch(1), "epochs differ");
        }
    }
}
