//! Sequential shuffle: samples are read in sequence into a reservoir, and the next sample is drawn from it.
//!
//! In: the blocks of a source, the number of ranks and readers, and the size of the reservoir. Out: two orders for each rank. The
//! *walk* is the order in which its readers read samples, counted in steps. The other is the order in which samples leave the
//! reservoir, counted in turns. The shuffled blocks of an epoch form one sequence. Each rank has an equal part of it, and each of
//! its readers an equal part of that. Turn k of rank r is at position k x world + r.
//!
//! At each turn a slot of the reservoir is drawn by a counter-based generator. Its sample leaves, and the sample of the next step
//! takes its place. So the content of a slot follows from the turn at which it was last drawn. Any turn can be computed by looking
//! back until every slot was drawn: about n ln n turns for n slots (coupon collector), whatever came before. At the end of the walk
//! the slots are emptied in an order that depends on the key.
//!
//! Always true: within an epoch all ranks together visit each sample once (law 2). The sequence depends on the number of ranks.

use std::num::NonZero;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;

use super::blocks::{Blocks, ShuffledBlocks};
use super::interleave::Interleave;
use super::random::{Purpose, StreamKey, below};
use super::{Epoch, Ordinal, Permutation, Position, Rank, ReservoirTurn, Seed, WalkStep};

/// Turns are computed in pieces. A piece has this many turns per slot of the reservoir, at least [`MIN_PIECE_TURNS`].
const PIECE_SIZES: u64 = 4;
const MIN_PIECE_TURNS: u64 = 4096;
/// Number of such pieces to keep. A run reads some places ahead of its current one.
const KEPT_PIECES: NonZero<usize> = NonZero::new(4).expect("4 is not zero");

/// The rule of a sequential shuffle.
#[derive(Clone, Debug)]
pub struct Reservoir {
    /// The blocks to read in sequence.
    pub blocks: Arc<Blocks>,
    /// Number of ranks.
    pub world: u32,
    /// Readers per rank.
    pub readers: u32,
    /// Samples in the reservoir of each rank.
    pub size: u64,
}

/// A sequential shuffle in one epoch.
#[derive(Debug)]
pub struct ReservoirEpoch {
    rule: Reservoir,
    blocks: ShuffledBlocks,
    draws: StreamKey,
    drains: StreamKey,
    /// Computed pieces, by rank and number of the piece.
    pieces: Mutex<LruCache<(u32, u64), Piece>>,
}

/// The steps of neighbouring turns.
type Piece = Arc<Vec<WalkStep>>;

/// One rank's part of an epoch.
#[derive(Clone, Copy, Debug)]
struct RankPart {
    rank: u32,
    first: u64,
    samples: u64,
    /// Samples in its reservoir. The whole part, if that is smaller than the requested size.
    size: u64,
}

impl RankPart {
    /// Number of turns at which a new sample replaces the one that leaves.
    fn refill_turns(&self) -> u64 {
        self.samples - self.size
    }
}

impl Reservoir {
    /// The sequence of an epoch.
    pub fn epoch(&self, seed: Seed, epoch: Epoch) -> ReservoirEpoch {
        let key = |purpose| StreamKey::new(seed, epoch, purpose);
        ReservoirEpoch {
            blocks: self.blocks.shuffled(key(Purpose::Blocks)),
            draws: key(Purpose::Reservoir),
            drains: key(Purpose::Drain),
            pieces: Mutex::new(LruCache::new(KEPT_PIECES)),
            rule: self.clone(),
        }
    }

    /// Number of samples of a rank.
    pub fn samples(&self, rank: u32) -> u64 {
        // The first `samples % world` ranks get one sample more.
        (self.blocks.samples() + u64::from(self.world - 1 - rank)) / u64::from(self.world)
    }

    fn part(&self, rank: u32) -> RankPart {
        let (all, world, samples) = (self.blocks.samples(), u64::from(self.world), self.samples(rank));
        // Parts of the ranks before this one, of which up to `all % world` are one sample longer.
        let first = u64::from(rank) * (all / world) + u64::from(rank).min(all % world);
        RankPart { rank, first, samples, size: self.size.clamp(1, samples.max(1)).min(samples) }
    }
}

impl ReservoirEpoch {
    /// The ordinal at a position of the epoch.
    pub(crate) fn ordinal_at(&self, position: Position) -> Ordinal {
        let (rank, turn) = self.turn_at(position);
        self.ordinal_of_step(rank.rank, self.step_at(rank.rank, turn))
    }

    /// The rank and the turn of a position.
    pub fn turn_at(&self, position: Position) -> (Rank, ReservoirTurn) {
        let world = u64::from(self.rule.world);
        let rank = Rank { rank: (position.0 % world) as u32, world: self.rule.world };
        (rank, ReservoirTurn(position.0 / world))
    }

    /// The ordinal that a rank reads at a step of its walk.
    pub fn ordinal_of_step(&self, rank: u32, step: WalkStep) -> Ordinal {
        let part = self.rule.part(rank);
        let walk = Interleave::new(part.samples, self.rule.readers.into());
        self.blocks.ordinal_at(part.first + walk.place_at(step.0))
    }

    /// The step at which the sample that leaves at `turn` was read.
    pub fn step_at(&self, rank: u32, turn: ReservoirTurn) -> WalkStep {
        let part = self.rule.part(rank);
        let len = (PIECE_SIZES * part.size).max(MIN_PIECE_TURNS);
        let number = turn.0 / len;
        let known = self.pieces.lock().unwrap_or_else(PoisonError::into_inner).get(&(rank, number)).cloned();
        let piece = known.unwrap_or_else(|| {
            // Computed without the lock. Two threads that do so at once get the same result.
            let piece = Arc::new(self.steps(&part, number * len..((number + 1) * len).min(part.samples)));
            let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
            pieces.put((rank, number), Arc::clone(&piece));
            piece
        });
        piece[(turn.0 - number * len) as usize]
    }

    /// The steps of the samples in a rank's reservoir before `turn`, ascending. All other steps below `turn` plus the reservoir's
    /// size have left.
    pub fn held_at(&self, rank: u32, turn: ReservoirTurn) -> Vec<WalkStep> {
        let part = self.rule.part(rank);
        let slots = self.slots_at(&part, turn.0);
        // Number of slots that are already empty.
        let drained = turn.0.saturating_sub(part.refill_turns());
        let order = Permutation::new(self.drains, part.size);
        let mut held: Vec<WalkStep> = match drained {
            0 => slots,
            _ => (drained..part.size).map(|number| slots[order.at(number) as usize]).collect(),
        };
        held.sort_unstable();
        held
    }

    /// Number of ranks.
    pub fn world(&self) -> u32 {
        self.rule.world
    }

    /// Number of steps, and of turns, of a rank.
    pub fn samples(&self, rank: u32) -> u64 {
        self.rule.samples(rank)
    }

    /// The size of a rank's reservoir.
    pub fn size(&self, rank: u32) -> u64 {
        self.rule.part(rank).size
    }

    fn drawn_slot(&self, part: &RankPart, turn: u64) -> usize {
        below(self.draws.bits(turn, part.rank, 0), part.size) as usize
    }

    /// For each slot, the step of its sample before `turn`.
    fn slots_at(&self, part: &RankPart, turn: u64) -> Vec<WalkStep> {
        // Before the first turn, slot `i` has the sample of step `i`.
        let mut slots: Vec<WalkStep> = (0..part.size).map(WalkStep).collect();
        let (mut is_found, mut left) = (vec![false; slots.len()], slots.len());
        // Backwards: the last draw of a slot decides what is in it. Once each slot was seen, earlier turns do not matter.
        for turn in (0..turn.min(part.refill_turns())).rev() {
            let slot = self.drawn_slot(part, turn);
            if !std::mem::replace(&mut is_found[slot], true) {
                // At turn `t` the sample of step `size + t` takes the free slot.
                slots[slot] = WalkStep(part.size + turn);
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
        slots
    }

    /// The step of the sample that leaves at each turn.
    fn steps(&self, part: &RankPart, turns: Range<u64>) -> Vec<WalkStep> {
        let mut slots = self.slots_at(part, turns.start);
        let order = Permutation::new(self.drains, part.size);
        let filled = part.refill_turns();
        let leaving_step = |turn: u64| match turn.checked_sub(filled) {
            // The walk has ended: slots are emptied in a random order, and nothing replaces them.
            Some(number) => slots[order.at(number) as usize],
            None => std::mem::replace(&mut slots[self.drawn_slot(part, turn)], WalkStep(part.size + turn)),
        };
        turns.map(leaving_step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Block;
    use super::*;
    use proptest::prelude::*;

    fn reservoir(samples: u64, world: u32, readers: u32, size: u64) -> ReservoirEpoch {
        let together =
            [Block { samples: samples / 3, bytes: 500 }, Block { samples: samples - samples / 3, bytes: 900 }];
        let blocks = Arc::new(Blocks::cut(&together, 100));
        Reservoir { blocks, world, readers, size }.epoch(Seed(5), Epoch(2))
    }

    #[test]
    fn law_2_each_sample_is_visited_once_over_ranks_1_2_3_8() {
        for world in [1, 2, 3, 8] {
            for samples in [1, 2, 7, 64, 1001] {
                for (readers, size) in [(1, 1), (3, 10), (4, 5000)] {
                    let epoch = reservoir(samples, world, readers, size);
                    let mut seen: Vec<u64> = (0..samples).map(|p| epoch.ordinal_at(Position(p)).0).collect();
                    seen.sort_unstable();
                    assert!(seen.into_iter().eq(0..samples), "{samples} over {world}, {readers} readers, size {size}");
                }
            }
        }
    }

    #[test]
    fn a_sample_leaves_only_after_it_was_read_into_a_reservoir_of_the_requested_size() {
        let epoch = reservoir(1000, 1, 4, 50);
        for turn in 0..1000 {
            let step = epoch.step_at(0, ReservoirTurn(turn)).0;
            assert!(step < turn + 50, "step {step} at turn {turn}");
        }
        assert!(!(0..900).map(|turn| epoch.step_at(0, ReservoirTurn(turn))).is_sorted(), "it is shuffled");
    }

    #[test]
    fn a_reservoir_of_one_gives_the_walk_itself_and_one_of_all_reads_all_first() {
        let one = reservoir(100, 1, 1, 1);
        assert!((0..100).map(|turn| one.step_at(0, ReservoirTurn(turn)).0).eq(0..100));
        assert_eq!(reservoir(100, 1, 2, 1_000_000).held_at(0, ReservoirTurn(0)).len(), 100);
    }

    #[test]
    fn neighbouring_steps_of_a_reader_are_neighbouring_samples() {
        let epoch = reservoir(3000, 2, 4, 10);
        let walk: Vec<u64> = (0..1500).map(|step| epoch.ordinal_of_step(1, WalkStep(step)).0).collect();
        let breaks = (4..1500).filter(|&step| walk[step] != walk[step - 4] + 1).count();
        assert!(breaks <= 4 * 4 + 15, "{breaks} breaks");
    }

    proptest! {
        #[test]
        fn law_4_the_reservoir_at_any_turn_has_the_samples_that_were_read_and_have_not_left(
            samples in 1..400_u64, world in 1..4_u32, readers in 1..5_u32, size in 1..80_u64, share in 0.0..1.0_f64,
        ) {
            let epoch = reservoir(samples, world, readers, size);
            for rank in 0..world {
                let all = epoch.samples(rank);
                let (turn, size) = ((all as f64 * share) as u64, epoch.size(rank));
                let left: std::collections::BTreeSet<WalkStep> =
                    (0..turn).map(|turn| epoch.step_at(rank, ReservoirTurn(turn))).collect();
                prop_assert_eq!(left.len() as u64, turn);
                let held: Vec<WalkStep> = (0..(turn + size).min(all)).map(WalkStep).filter(|step| !left.contains(step)).collect();
                prop_assert_eq!(epoch.held_at(rank, ReservoirTurn(turn)), held, "rank {} turn {}", rank, turn);
            }
        }
    }
}
