//! The unread part of one rank's walk through an epoch.
//!
//! In: the turn at which the stream starts. Out: each step once. First come the samples that were in the reservoir at that turn,
//! then the later steps in ascending order. Samples that fill no batch are never delivered, so they are left out.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use feedline_order::{ReservoirEpoch, ReservoirTurn, Share, WalkStep};

/// The unread steps of a walk.
#[derive(Debug)]
pub(super) struct RemainingReads {
    pub walk: Arc<ReservoirEpoch>,
    /// Steps that were in the reservoir at the first turn. They must be read again.
    again: VecDeque<WalkStep>,
    /// The next step after those, and the end.
    next: u64,
    end: u64,
    dropped: HashSet<WalkStep>,
}

impl RemainingReads {
    /// The unread steps from `turn` on, for a share of the epoch.
    pub(super) fn from_turn(walk: Arc<ReservoirEpoch>, rank: u32, turn: ReservoirTurn, share: &Share) -> Self {
        let end = walk.samples(rank);
        // Positions are interleaved over the ranks, so this rank has received one of `world` before the offset.
        let before = share.offset() / u64::from(walk.world());
        let delivered = before.saturating_add(share.samples()).min(end);
        let dropped: HashSet<WalkStep> = (delivered..end).map(|turn| walk.step_at(rank, ReservoirTurn(turn))).collect();
        let (again, next) = match turn {
            ReservoirTurn(0) => (Vec::new(), 0),
            // At turn t the first t + size steps have been read. Those still held then must be read again.
            turn => (walk.held_at(rank, turn), turn.0.saturating_add(walk.size(rank)).min(end)),
        };
        let again = again.into_iter().filter(|step| !dropped.contains(step)).collect();
        Self { walk, again, next, end, dropped }
    }

    /// Number of unread steps, including those that will be left out.
    pub(super) fn left(&self) -> u64 {
        self.again.len() as u64 + (self.end - self.next)
    }

    /// Whether a step will still be read.
    pub(super) fn is_coming(&self, step: WalkStep) -> bool {
        let is_ahead = (self.next..self.end).contains(&step.0) && !self.dropped.contains(&step);
        is_ahead || self.again.binary_search(&step).is_ok()
    }
}

impl Iterator for RemainingReads {
    type Item = WalkStep;

    fn next(&mut self) -> Option<WalkStep> {
        if let Some(step) = self.again.pop_front() {
            return Some(step);
        }
        while self.next < self.end {
            let step = WalkStep(self.next);
            self.next += 1;
            if !self.dropped.contains(&step) {
                return Some(step);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_order::{Block, Blocks, Epoch, Rank, Reservoir, Seed};

    fn walk(world: u32) -> Arc<ReservoirEpoch> {
        let blocks = Arc::new(Blocks::cut(&[Block { samples: 103, bytes: 103 }], 10));
        Arc::new(Reservoir { blocks, world, readers: 2, size: 20 }.epoch(Seed(1), Epoch(0)))
    }

    #[test]
    fn law_4_what_is_read_from_a_turn_on_is_what_is_delivered_from_it_on() {
        for (world, drop_last, turn) in [(1, false, 0), (1, false, 33), (1, true, 95), (2, true, 0), (2, false, 51)] {
            for rank in 0..world {
                let walk = walk(world);
                let share = Share::new(103, 0, Rank { rank, world }, 10, drop_last);
                let remaining = RemainingReads::from_turn(Arc::clone(&walk), rank, ReservoirTurn(turn), &share);
                let mut read: Vec<WalkStep> = remaining.collect();
                let end = share.samples().min(walk.samples(rank));
                let mut delivered: Vec<WalkStep> =
                    (turn..end).map(|turn| walk.step_at(rank, ReservoirTurn(turn))).collect();
                read.sort_unstable();
                delivered.sort_unstable();
                assert_eq!(read, delivered, "rank {rank} of {world} from {turn}");
            }
        }
    }

    #[test]
    fn what_is_coming_is_what_will_be_read() {
        let mut remaining =
            RemainingReads::from_turn(walk(1), 0, ReservoirTurn(40), &Share::new(103, 0, Rank::ALONE, 10, true));
        assert_eq!(remaining.by_ref().take(15).count(), 15);
        let coming: HashSet<WalkStep> = (0..103).map(WalkStep).filter(|&step| remaining.is_coming(step)).collect();
        assert_eq!(remaining.collect::<HashSet<WalkStep>>(), coming);
    }
}
