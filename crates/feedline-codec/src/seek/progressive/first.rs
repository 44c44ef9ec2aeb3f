//! Reads the first scan of a band of AC coefficients.
#![expect(clippy::inline_always, reason = "only so do the fields of a reader stay in registers")]

use std::ops::Range;

use super::band::BandCode;
use super::blocks::UnitRow;
use crate::seek::bits::BitReader;
use crate::seek::coefficients::ZIGZAG_TO_NATURAL;
use crate::seek::huffman::Code;

/// The first scan of a band.
#[derive(Debug)]
pub(super) struct FirstAc {
    code: BandCode,
    first: u32,
    last: u32,
    /// Blocks without coefficients that come next.
    empty: u32,
}

impl FirstAc {
    pub(super) fn new(code: &Code, (first, last): (u8, u8), low: u8) -> Self {
        // A larger value would not fit into 16 bits.
        let most = 15 - u32::from(low);
        Self { code: BandCode::new(code, low, most), first: first.into(), last: last.into(), empty: 0 }
    }

    /// A restart ends a run of empty blocks.
    pub(super) fn restart(&mut self) {
        self.empty = 0;
    }

    /// Reads some blocks of a row.
    pub(super) fn read(&mut self, bits: &mut BitReader<'_>, row: UnitRow<'_>, columns: Range<u32>) -> Option<()> {
        let UnitRow { window, slots, coefficients, nonzero } = row;
        // A copy, which stays in registers.
        let mut reader = bits.clone();
        let mut column = columns.start;
        while column < columns.end {
            if self.empty > 0 {
                let count = self.empty.min(columns.end - column);
                self.empty -= count;
                column += count;
                continue;
            }
            let nonzero = &mut nonzero[column as usize];
            self.empty = if window.contains(&column) {
                let block = &mut coefficients[slots[(column - window.start) as usize]];
                let put = |place: u32, value: i16| block[usize::from(ZIGZAG_TO_NATURAL[place as usize & 63])] = value;
                self.read_block(&mut reader, nonzero, put)?
            } else {
                self.read_block(&mut reader, nonzero, |_, _| ())?
            };
            column += 1;
        }
        *bits = reader;
        Some(())
    }

    /// Returns the number of empty blocks that follow.
    #[inline(always)]
    fn read_block(&self, bits: &mut BitReader<'_>, nonzero: &mut u64, mut put: impl FnMut(u32, i16)) -> Option<u32> {
        let mut place = self.first;
        while place <= self.last {
            bits.refill();
            let entry = self.code.entry(bits.peek(32))?;
            bits.consume(entry.len());
            if let Some(blocks) = entry.blocks() {
                return Some(blocks - 1);
            }
            let (zeros, value) = entry.coefficient();
            place += zeros;
            if place > self.last {
                return None;
            }
            put(place, value);
            *nonzero |= u64::from(value != 0) << place;
            place += 1;
        }
        Some(0)
    }
}
