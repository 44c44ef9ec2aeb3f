//! A shuffle without memory: the sample at any position of an epoch, computed alone.
//!
//! In: a key, a length, a position. Out: the number at that position of a permutation of `0..len`. A Feistel network permutes
//! the numbers below a power of four: the smallest that is at least `len`, and at least 4. A result outside `0..len` goes through
//! the network again until it falls inside (cycle walking), at most four steps on average. Nothing is stored, so
//! 10^9 samples cost no more than ten.

use super::random::{LANES, StreamKey, philox, philox_lanes};

// Four rounds with a random function already give a strong pseudo-random permutation (Luby and Rackoff). Two more are a margin.
const ROUNDS: u32 = 6;

/// A keyed permutation of `0..len`.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    keys: [[u32; 2]; ROUNDS as usize],
    len: u64,
    half_bits: u32,
}

impl Permutation {
    /// The permutation of `0..len` under `key`.
    pub fn new(key: StreamKey, len: u64) -> Self {
        // Bits of the largest number, rounded up to an even count, because both halves of a Feistel network have the same size.
        let bits = 64 - len.saturating_sub(1).leading_zeros();
        let half_bits = bits.div_ceil(2).max(1);
        let keys = std::array::from_fn(|round| {
            let bits = key.bits(round as u64, 0, 0);
            [bits as u32, (bits >> 32) as u32]
        });
        Self { keys, len, half_bits }
    }

    /// The number at `position`, which must be below the length.
    pub fn at(&self, position: u64) -> u64 {
        assert!(position < self.len, "position {position} in a permutation of {}", self.len);
        let mut walked = position;
        loop {
            // Cycle walking ends: the network is a permutation, so the cycle of `position` returns to `position`, which is below
            // `len`.
            walked = self.encrypt(walked);
            if walked < self.len {
                return walked;
            }
        }
    }

    /// Replaces each position by the number at it, as [`Permutation::at`] does, in a third of the time.
    pub fn each_at(&self, positions: &mut [u64]) {
        assert!(positions.iter().all(|&position| position < self.len), "a position in a permutation of {}", self.len);
        let mut walking: Vec<usize> = (0..positions.len()).collect();
        // Cycle walking, as in `at`: results outside of the range go through the network again, together.
        while !walking.is_empty() {
            for group in walking.chunks(LANES) {
                let mut values = [0; LANES];
                values.iter_mut().zip(group).for_each(|(value, &index)| *value = positions[index]);
                let encrypted = self.encrypt_lanes(values);
                group.iter().zip(encrypted).for_each(|(&index, value)| positions[index] = value);
            }
            walking.retain(|&index| positions[index] >= self.len);
        }
    }

    /// The same as [`Self::encrypt`] for several values. The values do not depend on each other, so the compiler uses SIMD.
    fn encrypt_lanes(&self, values: [u64; LANES]) -> [u64; LANES] {
        let mask = (1u64 << self.half_bits) - 1;
        let mut left = values.map(|value| value >> self.half_bits);
        let mut right = values.map(|value| value & mask);
        for key in self.keys {
            let blocks = philox_lanes(right, key);
            for lane in 0..LANES {
                (left[lane], right[lane]) = (right[lane], left[lane] ^ (blocks[lane] & mask));
            }
        }
        std::array::from_fn(|lane| left[lane] << self.half_bits | right[lane])
    }

    fn encrypt(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys {
            let block = philox([right as u32, (right >> 32) as u32, 0, 0], key);
            let round = (u64::from(block[0]) | u64::from(block[1]) << 32) & mask;
            // A round can be inverted whatever `round` is. So the network is a permutation.
            (left, right) = (right, left ^ round);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;
    use crate::{Epoch, Seed};

    fn permutation(epoch: u64, len: u64) -> Permutation {
        Permutation::new(StreamKey::new(Seed(7), Epoch(epoch), Purpose::Shuffle), len)
    }

    #[test]
    fn every_number_appears_once() {
        for len in [1, 2, 3, 7, 64, 65, 1000, 4097] {
            let permutation = permutation(3, len);
            let mut seen: Vec<u64> = (0..len).map(|position| permutation.at(position)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..len), "length {len}");
        }
    }

    #[test]
    fn many_positions_at_once_give_the_same_numbers() {
        for len in [1, 2, 3, 7, 64, 65, 1000, 4097, 1 << 40, u64::MAX] {
            let permutation = permutation(3, len);
            let positions = (0..len.min(1000)).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % len);
            let mut numbers: Vec<u64> = positions.clone().collect();
            permutation.each_at(&mut numbers);
            assert!(numbers.into_iter().eq(positions.map(|position| permutation.at(position))), "length {len}");
        }
    }

    #[test]
    fn epochs_are_shuffled_differently() {
        let epoch = |epoch| (0..100).map(|position| permutation(epoch, 100).at(position)).collect::<Vec<_>>();
        assert_ne!(epoch(0), epoch(1));
    }

    #[test]
    fn a_billion_samples_need_no_memory() {
        let permutation = permutation(0, 1_000_000_000);
        assert!((0..1000).all(|position| permutation.at(position * 999_983) < 1_000_000_000));
    }

    #[test]
    fn positions_and_numbers_are_uncorrelated() {
        let (len, permutation) = (10_000u64, permutation(1, 10_000));
        let mean = (len - 1) as f64 / 2.0;
        let covariance: f64 = (0..len).map(|p| (p as f64 - mean) * (permutation.at(p) as f64 - mean)).sum();
        let variance: f64 = (0..len).map(|p| (p as f64 - mean).powi(2)).sum();
        assert!((covariance / variance).abs() < 0.04, "correlation {}", covariance / variance);
    }
}
