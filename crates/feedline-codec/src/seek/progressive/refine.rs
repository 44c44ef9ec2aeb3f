//! Reads a scan with one more bit of a band of AC coefficients.
//!
//! The scan has a correction bit for each coefficient that is not zero yet, and codes for those that become nonzero: how many
//! coefficients stay zero before them, and their sign. So it cannot be read without knowing which coefficients are zero.
#![expect(clippy::inline_always, reason = "only so do the fields of a reader stay in registers")]

use std::ops::Range;

use super::band::BandCode;
use super::blocks::UnitRow;
use super::zeros::ZeroPlaces;
use crate::seek::bits::BitReader;
use crate::seek::coefficients::ZIGZAG_TO_NATURAL;
use crate::seek::huffman::Code;

/// A scan that refines a band.
#[derive(Debug)]
pub(super) struct RefineAc {
    code: BandCode,
    /// The first coefficient of the band, in zigzag order, and the number of coefficients.
    first: u32,
    count: u32,
    /// Blocks without new coefficients that come next.
    unchanged: u32,
    low: u8,
}

impl RefineAc {
    pub(super) fn new(code: &Code, (first, last): (u8, u8), low: u8) -> Self {
        let (first, last) = (u32::from(first), u32::from(last));
        // A new coefficient is 1 or -1 at the scan's bit.
        Self { code: BandCode::new(code, low, 1), first, count: last - first + 1, unchanged: 0, low }
    }

    /// A restart ends a run of unchanged blocks.
    pub(super) fn restart(&mut self) {
        self.unchanged = 0;
    }

    /// Reads some blocks of a row.
    pub(super) fn read(&mut self, bits: &mut BitReader<'_>, row: UnitRow<'_>, columns: Range<u32>) -> Option<()> {
        let UnitRow { window, slots, coefficients, nonzero } = row;
        // A copy, which stays in registers.
        let mut reader = bits.clone();
        for column in columns {
            let nonzero = &mut nonzero[column as usize];
            if window.contains(&column) {
                let block = &mut coefficients[slots[(column - window.start) as usize]];
                let place_of = |place: u32| usize::from(ZIGZAG_TO_NATURAL[(self.first + place) as usize & 63]);
                let old = self.old(*nonzero);
                let (changes, unchanged) =
                    self.read_block(&mut reader, old, |place, value| block[place_of(place)] = value)?;
                correct(block, old, changes.corrections, place_of, self.low);
                *nonzero |= changes.new << self.first;
                self.unchanged = unchanged;
            } else {
                let (changes, unchanged) = self.read_block(&mut reader, self.old(*nonzero), |_, _| ())?;
                *nonzero |= changes.new << self.first;
                self.unchanged = unchanged;
            }
        }
        *bits = reader;
        Some(())
    }

    /// The coefficients of the band that are not zero, from the lowest bit on.
    #[inline]
    fn old(&self, nonzero: u64) -> u64 {
        (nonzero >> self.first) & ((1 << self.count) - 1)
    }

    /// Reads a block with these nonzero coefficients. Returns also the number of unchanged blocks that follow. `put` gets new
    /// coefficients, and perhaps zeros for others that are zero.
    #[inline(always)]
    fn read_block(&self, bits: &mut BitReader<'_>, old: u64, mut put: impl FnMut(u32, i16)) -> Option<(Changes, u32)> {
        let mut changes = Changes::default();
        if self.unchanged > 0 {
            if old != 0 {
                bits.refill();
                changes.add_corrections(bits, old.count_ones());
            }
            return Some((changes, self.unchanged - 1));
        }
        let mut zero_places = ZeroPlaces::default();
        zero_places.find(!old, self.count);
        // The next place, and the number of zero ones before it.
        let (mut place, mut passed) = (0, 0);
        while place < self.count {
            bits.refill();
            let entry = self.code.entry(bits.peek(32))?;
            bits.consume(entry.len());
            if let Some(blocks) = entry.blocks() {
                let zeros_left = zero_places.len() - passed;
                changes.add_corrections(bits, self.count - place - zeros_left);
                return Some((changes, blocks - 1));
            }
            let (zeros, value) = entry.coefficient();
            let found = zero_places.get(passed + zeros)?;
            // All places up to this one have a coefficient of zero, or a correction bit.
            changes.add_corrections(bits, found - place - zeros);
            put(found, value);
            changes.new |= u64::from(value != 0) << found;
            passed += zeros + 1;
            place = found + 1;
        }
        Some((changes, 0))
    }
}

/// The changes of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Changes {
    /// The coefficients that are not zero any more.
    new: u64,
    /// A bit for each coefficient that was not zero before, the first one highest.
    corrections: u64,
}

impl Changes {
    /// Reads a bit for each of `count` coefficients. At least 24 bits are valid.
    #[inline(always)]
    fn add_corrections(&mut self, bits: &mut BitReader<'_>, count: u32) {
        let mut left = count;
        if left > 24 {
            bits.refill();
            self.corrections = self.corrections << 24 | u64::from(bits.peek(24));
            bits.consume(24);
            left -= 24;
            if left > 24 {
                self.corrections = self.corrections << 24 | u64::from(bits.peek(24));
                bits.consume(24);
                left -= 24;
            }
            bits.refill();
        }
        self.corrections = self.corrections << left | bits.peek_or_none(left);
        bits.consume(left);
    }
}

/// Adds one at bit `low`, away from zero, to the coefficients whose correction bit is set.
#[inline(always)]
fn correct(block: &mut [i16; 64], old: u64, corrections: u64, place_of: impl Fn(u32) -> usize, low: u8) {
    if corrections == 0 {
        return;
    }
    let mut places = old;
    let mut flags = corrections << (64 - old.count_ones());
    while flags != 0 {
        let coefficient = &mut block[place_of(places.trailing_zeros())];
        // Without a branch, because the bits are nearly random: -1 or 1, times the bit.
        *coefficient += ((*coefficient >> 15 | 1) * (flags >> 63) as i16) << low;
        places &= places - 1;
        flags <<= 1;
    }
}
