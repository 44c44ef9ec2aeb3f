//! Counts how often each sample came in an epoch, for samplers outside the engine.
//!
//! In: samples in the order of the sampler. Out: the occurrence of each. A bit for each sample is enough while none is repeated.

use std::collections::HashMap;

use feedline_order::{Epoch, Occurrence, SampleId};

/// Repeats are counted for samples with numbers below 64 times this (128 MB of bits).
const MAX_WORDS: usize = 1 << 24;

/// The samples of an epoch so far.
#[derive(Debug, Default)]
pub struct Visits {
    epoch: Epoch,
    once: Vec<u64>,
    again: HashMap<SampleId, u32>,
}

impl Visits {
    /// Begins an epoch. Forgets all samples.
    pub fn begin(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.once.fill(0);
        self.again.clear();
    }

    /// The epoch.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Counts a sample. Returns how often it came before.
    pub fn count(&mut self, id: SampleId) -> Occurrence {
        let word = usize::try_from(id.0 / 64).unwrap_or(usize::MAX);
        if word >= MAX_WORDS {
            // Hashes of indices that are no numbers, and samples of very large datasets. Their repeats are not counted.
            return Occurrence(0);
        }
        if word >= self.once.len() {
            self.once.resize((word + 1).next_power_of_two(), 0);
        }
        let bit = 1 << (id.0 % 64);
        if self.once[word] & bit == 0 {
            self.once[word] |= bit;
            return Occurrence(0);
        }
        let times = self.again.entry(id).or_default();
        *times += 1;
        Occurrence(*times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_counted_within_an_epoch() {
        let mut visits = Visits::default();
        let mut count = |ids: &[u64]| ids.iter().map(|&id| visits.count(SampleId(id)).0).collect::<Vec<_>>();
        assert_eq!(count(&[3, 64, 3, 3, 100_000, 64]), [0, 0, 1, 2, 0, 1]);
        assert_eq!(count(&[u64::MAX, u64::MAX]), [0, 0], "no number of a sample");
        visits.begin(Epoch(1));
        assert_eq!((visits.count(SampleId(3)), visits.epoch()), (Occurrence(0), Epoch(1)));
    }
}
