//! Decodes the AC coefficients of blocks.
//!
//! In: the bits after a block's DC difference. Out: its coefficients in natural order. Always true: whatever the bits are, writes
//! stay inside the block. Bits that run past the end of a block are reported, and so is a run of 16 zeros that reaches it. The walk
//! that skips blocks (`huffman.rs`) accepts exactly the same bits.

use super::bits::BitReader;
use super::huffman::{Code, Symbols, extended};

/// Bits that index the table. Most codes fit into them together with the bits of their value.
const LOOK: u32 = 10;

/// What the next [`LOOK`] bits start with. Bits 0 to 4: length of code and value. Bit 7: [`SEPARATE`]. Bits 8 to 15: coefficients
/// to skip. Bits 16 to 31: the value or, with [`SEPARATE`], the number of its bits. 0 if the code is longer than [`LOOK`] bits.
type DecodeStep = u32;

const SKIP_SHIFT: u32 = 8;
const VALUE_SHIFT: u32 = 16;
/// The value is not in the table.
const SEPARATE: DecodeStep = 1 << 7;
/// Coefficients to skip at the end of a block. More than a block has, so that the end cannot be confused with anything else. A
/// multiple of 64, so that the masked write hits the current place, which is still zero.
const END: usize = 128;

/// Row-major index of each coefficient in zigzag order (T.81, figure A.6).
#[rustfmt::skip]
pub(super) const ZIGZAG_TO_NATURAL: [u8; 64] = [
     0,  1,  8, 16,  9,  2,  3, 10, 17, 24, 32, 25, 18, 11,  4,  5,
    12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13,  6,  7, 14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
    58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// Which coefficients of a block are coded, and in which order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// Rows and columns of a block that have coefficients.
    pub side: u8,
    /// The start of the AC coefficients in `natural`. They are its last entries, so that a block ends at the same place in all
    /// orders.
    first: usize,
    natural: [u8; 64],
}

impl Order {
    /// All 64 coefficients, as in a JPEG file.
    pub(super) const WHOLE: &Self = &Self::of(8);

    /// The order for blocks with 8, 4, 2 or 1 rows. `None` for other sides.
    pub(super) fn by_side(side: u8) -> Option<&'static Self> {
        const ALL: [&Order; 4] = [Order::WHOLE, &Order::of(4), &Order::of(2), &Order::of(1)];
        ALL.into_iter().find(|order| order.side == side)
    }

    /// For each coefficient in zigzag order, its rank in this order. 0 for missing ones, and for DC.
    pub(super) fn ranks(&self) -> [u8; 64] {
        ZIGZAG_TO_NATURAL.map(|natural| {
            let place = (self.first..64).find(|&place| self.natural[place] == natural);
            place.map_or(0, |place| (place - self.first + 1) as u8)
        })
    }

    /// Number of AC coefficients of a block.
    pub(super) fn count(&self) -> u8 {
        (64 - self.first) as u8
    }

    const fn of(side: u8) -> Self {
        let mut natural = [0; 64];
        let mut first = 64;
        let mut place = 63;
        while place > 0 {
            if ZIGZAG_TO_NATURAL[place] % 8 < side && ZIGZAG_TO_NATURAL[place] / 8 < side {
                first -= 1;
                natural[first] = ZIGZAG_TO_NATURAL[place];
            }
            place -= 1;
        }
        Self { side, first, natural }
    }
}

/// Decodes AC coefficients, one per step.
#[derive(Debug)]
pub(super) struct Coefficients {
    steps: Box<[DecodeStep; 1 << LOOK]>,
    single: Symbols,
}

impl Coefficients {
    pub(super) fn new(code: &Code) -> Self {
        let single = Symbols::new(code);
        let mut steps = Box::new([0; 1 << LOOK]);
        for (code, len, symbol) in code.codes().filter(|&(_, len, _)| len <= LOOK) {
            let first = (code << (LOOK - len)) as usize;
            // All values of the bits after the code share this code, so the table has an entry for each.
            for (low_bits, step) in (0..).zip(&mut steps[first..first + (1 << (LOOK - len))]) {
                *step = step_of(len, symbol, low_bits);
            }
        }
        Self { steps, single }
    }

    /// Decodes the coefficients of a zeroed block. `None` if the bits are invalid.
    #[inline]
    pub(super) fn read_block(&self, bits: &mut BitReader<'_>, order: &Order, block: &mut [i16; 64]) -> Option<()> {
        if order.first == 64 {
            return Some(());
        }
        self.read_each(bits, order.first, |place, value| block[usize::from(order.natural[place] & 63)] = value)
    }

    /// Decodes the coefficients of a block from place `first` on, and stores each at its place, below 64. A run of 16 zeros and the
    /// end of a block store a zero where nothing was stored yet.
    #[inline]
    pub(super) fn read_each(
        &self,
        bits: &mut BitReader<'_>,
        first: usize,
        mut put: impl FnMut(usize, i16),
    ) -> Option<()> {
        let mut place = first;
        // Returns whether the block ends.
        let mut put = |place: &mut usize, skip: usize, value: i16| {
            *place += skip;
            // The mask keeps the write inside the block whatever the bits are. `is_end` rejects such a block afterwards.
            put(*place & 63, value);
            *place += 1;
            *place >= 64
        };
        loop {
            bits.refill();
            // Five of these steps take at most 50 of 56 bits.
            for _ in 0..5 {
                let step = self.steps[bits.peek(LOOK) as usize];
                if step & SEPARATE != 0 || step == 0 {
                    break;
                }
                bits.consume(step & 31);
                if put(&mut place, (step >> SKIP_SHIFT & 0xff) as usize, (step >> VALUE_SHIFT) as i16) {
                    return is_end(place, (step >> VALUE_SHIFT) as i16).then_some(());
                }
            }
            let step = self.steps[bits.peek(LOOK) as usize];
            if step != 0 && step & SEPARATE == 0 {
                continue;
            }
            bits.refill();
            let (run, size) = if step == 0 {
                let (len, symbol) = self.single.next(bits)?;
                bits.consume(len);
                skip_and_size(symbol)
            } else {
                let size = step >> VALUE_SHIFT;
                // The entry counts code and value together. Only the code is consumed here.
                bits.consume((step & 31) - size);
                ((step >> SKIP_SHIFT & 0xff) as usize, size)
            };
            let value = if size == 0 { 0 } else { extended(bits.peek(size), size) as i16 };
            bits.consume(size);
            if put(&mut place, run, value) {
                return is_end(place, value).then_some(());
            }
        }
    }
}

/// Whether a block may end at this place after this value.
#[inline]
fn is_end(place: usize, value: i16) -> bool {
    // 16 zeros must not reach the end of a block: EOB stands for that.
    (place == 64 && value != 0) || place > END
}

/// The number of coefficients that a symbol skips, and of the bits of the value after it.
fn skip_and_size(symbol: u8) -> (usize, u32) {
    match (usize::from(symbol >> 4), u32::from(symbol & 15)) {
        // ZRL: sixteen zeros. `put` counts the last of them itself. Other symbols without a value end the block (EOB).
        (15, 0) => (15, 0),
        (_, 0) => (END, 0),
        (run, size) => (run, size),
    }
}

/// The step for a symbol with a code of `len` bits. `low_bits` are the `LOOK - len` bits after the code.
fn step_of(len: u32, symbol: u8, low_bits: u32) -> DecodeStep {
    let (skip, size) = skip_and_size(symbol);
    let common = (len + size) | (skip as u32) << SKIP_SHIFT;
    if size == 0 {
        return common;
    }
    if len + size > LOOK {
        return common | SEPARATE | size << VALUE_SHIFT;
    }
    let value = extended(low_bits >> (LOOK - len - size), size) as i16;
    common | u32::from(value.cast_unsigned()) << VALUE_SHIFT
}
