//! Divides the positions of an epoch among ranks and batches.
//!
//! In: the length of the epoch, a rank, a batch size. Out: positions. Ranks take turns (rank, rank + world, ...). So after equal
//! numbers of batches, all ranks together have received a prefix of the epoch. A job may resume from that offset with another world
//! size or batch size.
//!
//! Always true: every rank has the same number of batches, and together they cover each position once (law 2). There are two
//! exceptions. Without `drop_last`, positions past the end repeat the first samples of the epoch, marked as padding. With it, the
//! incomplete rest is dropped.

use super::{Position, Rank, ShareIndex};

/// One rank's part of an epoch, from an offset to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    epoch_len: u64,
    offset: u64,
    rank: Rank,
    batch_size: u64,
    drop_last: bool,
}

/// A position, and whether it only fills up the last batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The position in the epoch, below its length.
    pub position: Position,
    /// Whether this repeats a sample so that all ranks get equally many.
    pub is_padding: bool,
}

impl Share {
    /// The share of `rank` of the positions `offset..epoch_len`.
    pub fn new(epoch_len: u64, offset: u64, rank: Rank, batch_size: usize, drop_last: bool) -> Self {
        Self { epoch_len, offset: offset.min(epoch_len), rank, batch_size: batch_size.max(1) as u64, drop_last }
    }

    /// The first position of the epoch that is divided.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Number of samples of this rank, padding included.
    pub fn samples(&self) -> u64 {
        let rest = self.epoch_len - self.offset;
        let world = u64::from(self.rank.world);
        // With `drop_last`, whole batches of all ranks. Otherwise equal numbers on all ranks, rounded up with padding.
        if self.drop_last { rest / world / self.batch_size * self.batch_size } else { rest.div_ceil(world) }
    }

    /// Number of batches of this rank.
    pub fn batches(&self) -> u64 {
        self.samples().div_ceil(self.batch_size)
    }

    /// Number of samples in batch `batch`.
    pub fn batch_len(&self, batch: u64) -> usize {
        self.samples().saturating_sub(batch.saturating_mul(self.batch_size)).min(self.batch_size) as usize
    }

    /// The place of a sample of this rank.
    pub fn place(&self, index: ShareIndex) -> Place {
        let global = self.offset + index.0 * u64::from(self.rank.world) + u64::from(self.rank.rank);
        // Positions past the end wrap around to the first samples of the epoch.
        Place { position: Position(global % self.epoch_len), is_padding: global >= self.epoch_len }
    }

    /// The offset that all ranks together reach when each has received `batches` batches.
    pub fn offset_after(&self, batches: u64) -> u64 {
        let own = batches.saturating_mul(self.batch_size).min(self.samples());
        self.offset.saturating_add(own.saturating_mul(self.rank.world.into())).min(self.epoch_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(len: u64, offset: u64, world: u32, batch: usize, drop_last: bool) -> Vec<Share> {
        (0..world).map(|rank| Share::new(len, offset, Rank { rank, world }, batch, drop_last)).collect()
    }

    #[test]
    fn law_2_each_position_is_seen_once_over_ranks_1_2_3_8() {
        for world in [1, 2, 3, 8] {
            for len in [1, 2, 7, 64, 1000] {
                for offset in [0, 1, len / 2] {
                    check_covers(len, offset, world);
                }
            }
        }
    }

    #[track_caller]
    fn check_covers(len: u64, offset: u64, world: u32) {
        let shares = shares(len, offset, world, 4, false);
        let places: Vec<Place> = shares.iter().flat_map(|s| (0..s.samples()).map(|n| s.place(ShareIndex(n)))).collect();
        let mut own: Vec<u64> = places.iter().filter(|p| !p.is_padding).map(|p| p.position.0).collect();
        own.sort_unstable();
        assert!(own.into_iter().eq(offset..len), "{len} samples from {offset} over {world} ranks");
        assert!(places.iter().filter(|p| p.is_padding).count() < world as usize);
        assert!(shares.iter().all(|share| share.batches() == shares[0].batches()));
    }

    #[test]
    fn dropping_gives_every_rank_whole_batches_of_distinct_samples() {
        for (len, world, batch) in [(103, 2, 10), (7, 3, 2), (5, 8, 1), (64, 1, 64)] {
            let shares = shares(len, 0, world, batch, true);
            let mut all: Vec<u64> =
                shares.iter().flat_map(|s| (0..s.samples()).map(|n| s.place(ShareIndex(n)).position.0)).collect();
            let count = all.len();
            assert!(shares.iter().all(|share| share.samples() == share.batches() * batch as u64));
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), count);
            assert!(len - (count as u64) < u64::from(world) * batch as u64);
        }
    }

    #[test]
    fn ranks_receive_a_prefix_from_which_another_world_size_continues() {
        let first = shares(100, 0, 4, 5, false);
        let offset = first[0].offset_after(3);
        assert_eq!(offset, 60);
        let second = shares(100, offset, 3, 7, false);
        let mut seen: Vec<u64> =
            first.iter().flat_map(|s| (0..15).map(|n| s.place(ShareIndex(n)).position.0)).collect();
        seen.extend(second.iter().flat_map(|s| {
            (0..s.samples())
                .map(|n| s.place(ShareIndex(n)))
                .filter(|p| !p.is_padding)
                .map(|p| p.position.0)
                .collect::<Vec<_>>()
        }));
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..100));
    }

    #[test]
    fn the_last_batch_is_short_unless_dropped() {
        let share = Share::new(10, 0, Rank::ALONE, 4, false);
        assert_eq!((share.batches(), share.batch_len(2)), (3, 2));
        assert_eq!(Share::new(10, 0, Rank::ALONE, 4, true).batches(), 2);
    }
}
