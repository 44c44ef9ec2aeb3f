//! A hash of a sequence that can be combined from the hashes of its parts.
//!
//! So the identity of a data set does not depend on its division into shards. Opening a data set reads one [`Identity`] per shard
//! and joins them. Each lane is a polynomial over the hashes of the elements, modulo a prime, as in Rabin-Karp hashing.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

/// A Mersenne prime.
const PRIME: u64 = (1 << 61) - 1;
/// The points at which the two polynomials are evaluated. They were drawn once at random.
const POINTS: [u64; 2] = [0x0d3a_97c1_5b2e_84f7, 0x1b60_c9d4_73a5_8e2b];

/// The hash of a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Identity {
    len: u64,
    lanes: [u64; 2],
}

impl Identity {
    /// Appends an element.
    pub(crate) fn push(&mut self, element: &[u8]) {
        let hash = xxh3_128(element);
        self.join(&Self { len: 1, lanes: [hash as u64, (hash >> 64) as u64] });
    }

    /// Appends another sequence, of which only the hash is known.
    pub(crate) fn join(&mut self, next: &Self) {
        for ((lane, next_lane), point) in self.lanes.iter_mut().zip(next.lanes).zip(POINTS) {
            // H(a ++ b) = H(a) * point^len(b) + H(b) modulo the prime.
            let shifted = multiply(*lane, power(point, next.len));
            // Both terms are below 2^61, so the sum does not overflow.
            *lane = (shifted + next_lane % PRIME) % PRIME;
        }
        // Lengths come from index files, which may be hostile, so the sum may overflow.
        self.len = self.len.wrapping_add(next.len);
    }

    /// The hash as one number.
    pub(crate) fn digest(&self) -> u128 {
        let [first, second] = self.lanes.map(u64::to_le_bytes);
        xxh3_128(&[self.len.to_le_bytes(), first, second].concat())
    }
}

/// `a * b` modulo the prime.
fn multiply(a: u64, b: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(PRIME)) as u64
}

/// `base` to the power of `exponent`, modulo the prime.
fn power(base: u64, mut exponent: u64) -> u64 {
    // Exponentiation by squaring: at most 64 steps.
    let (mut result, mut square) = (1, base);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(elements: &[&str]) -> Identity {
        let mut identity = Identity::default();
        for element in elements {
            identity.push(element.as_bytes());
        }
        identity
    }

    #[test]
    fn parts_joined_are_the_whole_wherever_it_is_divided() {
        let elements = ["a", "b", "", "a", "long element", "c"];
        for cut in 0..=elements.len() {
            let mut joined = of(&elements[..cut]);
            joined.join(&of(&elements[cut..]));
            assert_eq!(joined, of(&elements), "cut at {cut}");
        }
    }

    #[test]
    fn the_identity_depends_on_order_number_and_content() {
        let all =
            [of(&["a", "b"]), of(&["b", "a"]), of(&["a"]), of(&["a", "b", "b"]), of(&[]), of(&["", ""]), of(&[""])];
        for (number, one) in all.iter().enumerate() {
            assert!(all[number + 1..].iter().all(|other| one.digest() != other.digest()), "{number}");
        }
    }
}
