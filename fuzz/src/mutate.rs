//! Deterministic mutations of valid inputs.

use std::iter;

/// Numbers that often break the handling of lengths and signs.
const EDGE_VALUES: [u64; 8] = [0, 1, 0x7f, 0x80, 0xff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// An endless iterator over mutated copies of seeds.
#[derive(Debug)]
pub struct Mutations<'a> {
    seeds: &'a [Vec<u8>],
    state: u64,
}

impl<'a> Mutations<'a> {
    /// `seeds` must not be empty.
    pub fn new(seeds: &'a [Vec<u8>]) -> Self {
        Self { seeds, state: 0x2545_f491_4f6c_dd1d }
    }

    /// A number below `end` (xorshift).
    fn below(&mut self, end: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((self.state >> 11) % end.max(1) as u64) as usize
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        // Half of the changes are within the first 200 bytes, where headers and lengths are.
        let end = if self.below(2) == 0 { bytes.len() } else { bytes.len().min(200) };
        let at = self.below(end);
        let rest = bytes.len().saturating_sub(at);
        match self.below(8) {
            // Truncate; delete; duplicate; write an edge value in either byte order; copy from another seed; flip a bit.
            0 => bytes.truncate(at),
            1 => {
                let count = self.below(rest.min(40));
                bytes.drain(at..at + count);
            }
            2 => {
                let count = self.below(rest.min(600));
                let copy = bytes[at..at + count].to_vec();
                bytes.splice(at..at, copy);
            }
            3 => {
                let (value, len) = (EDGE_VALUES[self.below(EDGE_VALUES.len())], [1, 2, 4, 8][self.below(4)].min(rest));
                let value = if self.below(2) == 0 { value.to_le_bytes() } else { value.swap_bytes().to_le_bytes() };
                bytes[at..at + len].copy_from_slice(&value[..len]);
            }
            4 => {
                let other = &self.seeds[self.below(self.seeds.len())];
                let from = self.below(other.len());
                let count = rest.min(other.len() - from).min(1 + self.below(64));
                bytes[at..at + count].copy_from_slice(&other[from..from + count]);
            }
            _ if rest > 0 => bytes[at] ^= 1 << self.below(8),
            _ => bytes.push(0),
        }
    }
}

impl Iterator for Mutations<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let number = self.below(self.seeds.len());
        let mut bytes = self.seeds[number].clone();
        let changes = 1 + self.below(5);
        iter::repeat_n((), changes).for_each(|()| self.change(&mut bytes));
        Some(bytes)
    }
}
