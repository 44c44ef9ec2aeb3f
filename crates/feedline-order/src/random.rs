//! Counter-based random numbers: any number of any sample can be computed alone, on any machine.
//!
//! In: a key (seed, epoch, op, sample, occurrence) and the number of the draw. Out: 64 random bits, by Philox 4x32-10 (Salmon et
//! al., 2011). Nothing here keeps state, so threads, cuts and resumes cannot change a number (law 1). The generator is thirty lines
//! of our own, checked against the published vectors. Its bits are part of the contract: a new version of a library must not change
//! a user's data.

use super::{Epoch, SampleId, SampleRequest, Seed};

// Constants of the published algorithm. WEYL holds the golden ratio and sqrt(3) - 1, times 2^32.
const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 10;

/// Philox 4x32-10: 128 bits from a counter and a key.
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let low = u64::from(MULTIPLIER[0]) * u64::from(counter[0]);
        let high = u64::from(MULTIPLIER[1]) * u64::from(counter[2]);
        counter = [
            (high >> 32) as u32 ^ counter[1] ^ key[0],
            high as u32,
            (low >> 32) as u32 ^ counter[3] ^ key[1],
            low as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// Number of counters in [`philox_lanes`].
pub(crate) const LANES: usize = 8;

/// The first 64 bits of [`philox`] for several counters of 64 bits under one key.
pub(crate) fn philox_lanes(counters: [u64; LANES], mut key: [u32; 2]) -> [u64; LANES] {
    // Multiplications of 32-bit numbers in 64-bit lanes are one vector instruction on all processors.
    const LOW: u64 = 0xffff_ffff;
    let mut counter = [counters.map(|value| value & LOW), counters.map(|value| value >> 32), [0; LANES], [0; LANES]];
    for _ in 0..ROUNDS {
        let keys = key.map(u64::from);
        let mut next = [[0; LANES]; 4];
        for lane in 0..LANES {
            let low = u64::from(MULTIPLIER[0]) * (counter[0][lane] & LOW);
            let high = u64::from(MULTIPLIER[1]) * (counter[2][lane] & LOW);
            next[0][lane] = (high >> 32) ^ counter[1][lane] ^ keys[0];
            next[1][lane] = high & LOW;
            next[2][lane] = (low >> 32) ^ counter[3][lane] ^ keys[1];
            next[3][lane] = low & LOW;
        }
        counter = next;
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    std::array::from_fn(|lane| counter[0][lane] | counter[1][lane] << 32)
}

/// The use of a random number. Keeps the streams of different uses apart.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    /// The keyed permutation of an epoch.
    Shuffle,
    /// A weighted sampler's choice of sample.
    Sampler,
    /// The choice of a substitute for a bad sample.
    Substitute,
    /// The division of a source into named parts.
    Split,
    /// The bytes of a synthetic sample.
    Content,
    /// The order of the blocks that are read in sequence.
    Blocks,
    /// The draws from a reservoir.
    Reservoir,
    /// The order in which a reservoir is emptied.
    Drain,
    /// The division of a source into segments.
    Segments,
    /// The order of a segment in one round.
    Round,
    /// The seeds of the random number generators in worker processes.
    Worker,
    /// The draws of op number `n` of the chain.
    Op(u32),
    /// The draws of function number `n` on whole batches.
    Batch(u32),
}

impl Purpose {
    fn number(self) -> u64 {
        match self {
            Self::Shuffle => 1,
            Self::Sampler => 2,
            Self::Substitute => 3,
            Self::Split => 4,
            Self::Content => 5,
            Self::Blocks => 6,
            Self::Reservoir => 7,
            Self::Drain => 8,
            Self::Segments => 9,
            Self::Round => 10,
            Self::Worker => 11,
            // These numbers are part of the contract. To change one would change the data of users.
            Self::Op(op) => 1000 + u64::from(op),
            Self::Batch(function) => (1 << 32) + u64::from(function),
        }
    }
}

/// The key of one stream of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamKey([u32; 2]);

impl StreamKey {
    /// The key of all numbers drawn for `purpose` in `epoch`.
    pub fn new(seed: Seed, epoch: Epoch, purpose: Purpose) -> Self {
        // Mixed after each part, so that (seed, epoch) = (1, 2) and (2, 1) give unrelated keys.
        let mixed = mix(mix(mix(seed.0) ^ epoch.0) ^ purpose.number());
        Self([mixed as u32, (mixed >> 32) as u32])
    }

    /// 64 random bits at a place of the stream.
    pub fn bits(self, place: u64, lane: u32, number: u32) -> u64 {
        let block = philox([number, lane, place as u32, (place >> 32) as u32], self.0);
        u64::from(block[0]) | u64::from(block[1]) << 32
    }
}

/// The random numbers of one op for one sample, addressed by number. To draw means to look up, so a draw is known before any data
/// is read.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    key: StreamKey,
    request: SampleRequest,
}

impl Draw {
    /// The draw of an op, given by `key`, for a sample.
    pub fn new(key: StreamKey, request: SampleRequest) -> Self {
        Self { key, request }
    }

    /// The sample of this draw.
    pub fn id(&self) -> SampleId {
        self.request.id
    }

    /// The epoch of this draw.
    pub fn epoch(&self) -> Epoch {
        self.request.epoch
    }

    /// Number `number`, uniform over 64 bits.
    pub fn bits(&self, number: u32) -> u64 {
        self.key.bits(self.request.id.0, self.request.occurrence.0, number)
    }

    /// Number `number`, uniform in `[0, 1)`.
    pub(crate) fn unit(&self, number: u32) -> f64 {
        unit(self.bits(number))
    }

    /// Number `number`, uniform in `[low, high)`.
    pub fn between(&self, number: u32, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit(number)
    }

    /// Number `number` as an integer below `bound`.
    pub fn below(&self, number: u32, bound: u64) -> u64 {
        below(self.bits(number), bound)
    }

    /// Whether an event of the given probability happens.
    pub fn happens(&self, number: u32, probability: f64) -> bool {
        self.unit(number) < probability
    }
}

/// Uniform in `[0, 1)` from 64 random bits.
pub fn unit(bits: u64) -> f64 {
    // 53 bits, all that a float64 can hold, times 2^-53.
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// An integer below `bound` from 64 random bits. The bias is below 2^-32 for any bound up to 2^32.
pub fn below(bits: u64, bound: u64) -> u64 {
    // Lemire's multiply-shift: the high half of a 128-bit product, without a division.
    ((u128::from(bits) * u128::from(bound)) >> 64) as u64
}

/// The finaliser of `SplitMix64`: a bijection that spreads every input bit over the output.
pub fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Occurrence;

    #[test]
    fn philox_gives_the_published_vectors() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn numbers_are_uniform_and_streams_differ() {
        let key = |epoch, op| StreamKey::new(Seed(7), Epoch(epoch), Purpose::Op(op));
        let request = |id, occurrence| SampleRequest { id: SampleId(id), epoch: Epoch(0), occurrence };
        let draw = |id| Draw::new(key(0, 0), request(id, Occurrence(0)));
        let mean = (0..10_000).map(|id| draw(id).unit(0)).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.01, "mean {mean}");
        assert!((0..1000).all(|id| draw(id).below(3, 7) < 7));
        assert_ne!(key(0, 0), key(1, 0));
        assert_ne!(key(0, 0), key(0, 1));
        assert_ne!(
            draw(5).bits(0),
            Draw::new(key(0, 0), request(5, Occurrence(1))).bits(0),
            "a repeated sample is drawn anew"
        );
    }
}
