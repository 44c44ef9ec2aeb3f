//! Divides the data of a shared run into segments, which are produced in rounds.
//!
//! In: a seed that all jobs share, the number of samples, and the bytes of one. Out: the sample at each position of a round.
//! Segment `s` is a fixed set of samples at positions `s * length ..` of every round. Each round has its own order within a
//! segment. The samples of a segment are drawn one by one from all samples, or they are stored next to each other as blocks.
//! Nothing here depends on jobs, so every node and every job gets the same division.
//!
//! Always true: in one round all segments together visit each sample once (law 2).

use std::ops::Range;
use std::sync::Arc;

use super::blocks::{Blocks, ShuffledBlocks};
use super::random::{Purpose, StreamKey, below};
use super::{Epoch, Ordinal, Permutation, Position, Seed};

/// Upper limit of bytes in a segment.
const MAX_BYTES: u64 = 512 << 20;
/// Lower limit of the number of segments, even of a small data set.
const MIN_SEGMENTS: u64 = 8;
/// A shorter segment may have no good sample to substitute for a bad one.
const SHORT_SEGMENT: u64 = 16;
/// Long segments have a multiple of this many samples, so that batches of usual sizes do not cross their ends.
const ALIGNMENT: u64 = 256;

/// The segments of a data set.
#[derive(Clone, Debug)]
pub struct Segments {
    seed: Seed,
    len: u64,
    segment_len: u64,
    /// The sequence of blocks, if segments consist of blocks.
    blocks: Option<Arc<ShuffledBlocks>>,
}

impl Segments {
    /// Divides `len` samples of `sample_bytes` each.
    pub fn new(seed: Seed, len: u64, sample_bytes: u64) -> Self {
        let most = (MAX_BYTES / sample_bytes.max(1)).min(len / MIN_SEGMENTS).max(1);
        // A multiple of 256, or a power of two below it. Usual batch sizes divide both.
        let segment_len = if most >= ALIGNMENT { most / ALIGNMENT * ALIGNMENT } else { 1 << most.ilog2() };
        Self { seed, len, segment_len, blocks: None }
    }

    /// The same division with segments of whole blocks. Only the blocks at the ends of a segment may be cut.
    #[must_use]
    pub fn of_blocks(self, blocks: &Blocks) -> Self {
        let shuffled = blocks.shuffled(StreamKey::new(self.seed, Epoch(0), Purpose::Segments));
        Self { blocks: Some(Arc::new(shuffled)), ..self }
    }

    /// Whether the samples of a segment are stored next to each other.
    pub fn are_of_blocks(&self) -> bool {
        self.blocks.is_some()
    }

    /// Number of segments.
    pub fn count(&self) -> u64 {
        self.len.div_ceil(self.segment_len)
    }

    /// Samples per segment. The last segment may have fewer.
    pub fn segment_len(&self) -> u64 {
        self.segment_len
    }

    /// Whether a segment has the full length.
    pub fn is_full(&self, segment: u64) -> bool {
        let positions = self.positions(segment);
        positions.end - positions.start == self.segment_len
    }

    /// Total number of samples.
    pub fn samples(&self) -> u64 {
        self.len
    }

    /// The positions of a segment, in every round.
    pub fn positions(&self, segment: u64) -> Range<u64> {
        let start = segment * self.segment_len;
        start..(start + self.segment_len).min(self.len)
    }

    /// The segment that a position lies in.
    pub(crate) fn segment_at(&self, position: Position) -> u64 {
        position.0 / self.segment_len
    }

    /// The ordinal of the sample at a position of a round.
    pub fn at(&self, round: Epoch, position: Position) -> Ordinal {
        let segment = self.segment_at(position);
        let positions = self.positions(segment);
        // The order within a segment: its own key for each segment and round.
        let key = StreamKey::new(Seed(self.seed.0 ^ mixed(segment)), round, Purpose::Round);
        let place = Permutation::new(key, positions.end - positions.start).at(position.0 - positions.start);
        let member = positions.start + place;
        if let Some(blocks) = &self.blocks {
            return blocks.ordinal_at(member);
        }
        // The members of a segment: one permutation for all rounds, cut into equal pieces.
        let members = StreamKey::new(self.seed, Epoch(0), Purpose::Segments);
        Ordinal(Permutation::new(members, self.len).at(member))
    }

    /// A position to substitute for a bad sample: in the same segment, or anywhere if segments are short.
    pub(crate) fn substitute(&self, round: Epoch, position: Position, attempt: u32) -> Position {
        let is_short = self.segment_len < SHORT_SEGMENT;
        let positions = if is_short { 0..self.len } else { self.positions(self.segment_at(position)) };
        let key = StreamKey::new(self.seed, round, Purpose::Substitute);
        Position(positions.start + below(key.bits(position.0, 0, attempt), positions.end - positions.start))
    }
}

/// Spreads the numbers of segments over all bits.
fn mixed(segment: u64) -> u64 {
    (segment + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn law_2_in_a_round_every_sample_is_in_one_segment_and_comes_once() {
        for len in [1, 2, 7, 64, 1000] {
            let segments = Segments::new(Seed(7), len, 1000);
            for round in [1, 2] {
                let all: BTreeSet<u64> = (0..len).map(|p| segments.at(Epoch(round), Position(p)).0).collect();
                assert!(all.into_iter().eq(0..len), "{len} samples");
            }
            assert!((0..segments.count()).flat_map(|segment| segments.positions(segment)).eq(0..len));
        }
    }

    #[test]
    fn a_segment_has_the_same_samples_in_every_round_in_another_order() {
        let segments = Segments::new(Seed(3), 1000, 1000);
        assert_eq!((segments.segment_len(), segments.count()), (64, 16));
        let order = |round: u64, segment| -> Vec<u64> {
            segments.positions(segment).map(|p| segments.at(Epoch(round), Position(p)).0).collect()
        };
        for segment in [0, 7, 15] {
            let members = |round| order(round, segment).into_iter().collect::<BTreeSet<_>>();
            assert_eq!(members(1), members(9));
            assert_ne!(order(1, segment), order(9, segment));
        }
        assert!(!order(1, 0).is_sorted() && order(1, 0) != (0..64).collect::<Vec<_>>(), "members are drawn from all");
    }

    #[test]
    fn law_2_segments_of_blocks_have_few_seams_and_every_sample_once() {
        let blocks = Blocks::cut(&[super::super::Block { samples: 1000, bytes: 1000 }], 20);
        let segments = Segments::new(Seed(3), 1000, 1000).of_blocks(&blocks);
        let mut all = BTreeSet::new();
        for segment in 0..segments.count() {
            let positions = segments.positions(segment).map(Position);
            let order: Vec<u64> = positions.map(|position| segments.at(Epoch(4), position).0).collect();
            let members: BTreeSet<u64> = order.iter().copied().collect();
            let seams = members.iter().zip(members.iter().skip(1)).filter(|(a, b)| *a + 1 != **b).count();
            assert!(seams <= 64 / 20 + 1, "{seams} seams in segment {segment}");
            assert!(!order.is_sorted() || order.len() < 4, "within a segment samples are shuffled");
            all.extend(members);
        }
        assert!(all.into_iter().eq(0..1000));
    }

    #[test]
    fn segments_are_as_long_as_memory_and_usual_batches_suggest() {
        let len = |samples, bytes| Segments::new(Seed(0), samples, bytes).segment_len();
        assert_eq!(len(1_281_167, 602_112), 768, "float32 pictures, half a gigabyte");
        assert_eq!(len(10, 1000), 1);
        assert_eq!(len(3, 1 << 40), 1, "one sample may be larger than all should be");
        assert_eq!(len(100_000, 100), 12_288);
    }

    #[test]
    fn a_substitute_is_of_the_same_segment() {
        let segments = Segments::new(Seed(3), 1000, 1000);
        for position in [0, 63, 64, 999] {
            for attempt in 0..20 {
                let other = segments.substitute(Epoch(2), Position(position), attempt);
                assert_eq!(segments.segment_at(other), segments.segment_at(Position(position)));
                assert!(other.0 < 1000);
            }
        }
    }
}
