//! Decodes the symbols of scans with AC coefficients.
//!
//! In: the next bits. Out: an [`Entry`]: a coefficient and the number of zeros before it, or the number of blocks without further
//! coefficients. Nothing is taken by reference, so that callers keep their bits in registers.

use crate::seek::huffman::{Code, Symbols, extended};

/// Bits that index the table. Most codes fit into them together with the bits of their value.
const LOOK: u32 = 10;

/// A decoded symbol. Bits 0 to 4: length of code and value. Bit 5: set. Bit 6: whether the block ends. Bits 8 to 15: zeros before the
/// coefficient. Bits 16 to 31: the coefficient, or the number of blocks. All bits are zero if the symbol is not in the table.
///
/// A run of 16 zeros is 15 zeros and a coefficient of zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(u32);

const KNOWN: u32 = 1 << 5;
const END: u32 = 1 << 6;

impl Entry {
    const SEPARATE: Self = Self(0);

    fn value(len: u32, zeros: u32, value: i16) -> Self {
        Self(len | KNOWN | zeros << 8 | u32::from(value.cast_unsigned()) << 16)
    }

    fn end(len: u32, blocks: u32) -> Self {
        Self(len | KNOWN | END | blocks << 16)
    }

    /// The bits of code and value, at most 31.
    #[inline]
    pub(super) fn len(self) -> u32 {
        self.0 & 31
    }

    /// The number of blocks, with this one, that have no further coefficients. `None` for a coefficient.
    #[inline]
    pub(super) fn blocks(self) -> Option<u32> {
        (self.0 & END != 0).then_some(self.0 >> 16)
    }

    /// The number of zeros, and the coefficient after them.
    #[inline]
    pub(super) fn coefficient(self) -> (u32, i16) {
        (self.0 >> 8 & 0xff, (self.0 >> 16) as i16)
    }
}

/// The tables of a code of AC coefficients.
#[derive(Debug)]
pub(super) struct BandCode {
    entries: Box<[Entry; 1 << LOOK]>,
    single: Symbols,
    /// The place of the lowest bit of a value.
    low: u32,
    /// Upper limit of the bits of a value.
    most: u32,
}

impl BandCode {
    /// The tables for values of at most `most` bits, which are shifted by `low`.
    pub(super) fn new(code: &Code, low: u8, most: u32) -> Self {
        let low = u32::from(low);
        let entries = Box::new([Entry::SEPARATE; 1 << LOOK]);
        let mut this = Self { entries, single: Symbols::new(code), low, most };
        for (code, len, symbol) in code.codes().filter(|&(_, len, _)| len <= LOOK) {
            let window = code << (32 - len);
            let size = u32::from(if symbol.trailing_zeros() >= 4 { symbol >> 4 } else { symbol & 15 });
            let bits = if symbol == 0xf0 { 0 } else { size };
            if len + bits <= LOOK {
                let (first, count) = ((code << (LOOK - len)) as usize, 1 << (LOOK - len));
                for (low_bits, entry) in (0_u32..).zip(&mut this.entries[first..first + count]) {
                    *entry =
                        decoded(len, symbol, window | low_bits << (32 - LOOK), (low, most)).unwrap_or(Entry::SEPARATE);
                }
            }
        }
        this
    }

    /// Decodes the symbol at the beginning of 32 bits. `None` if they are invalid.
    #[inline]
    pub(super) fn entry(&self, window: u32) -> Option<Entry> {
        let entry = self.entries[(window >> (32 - LOOK)) as usize];
        if entry == Entry::SEPARATE { self.separate(window) } else { Some(entry) }
    }

    #[cold]
    fn separate(&self, window: u32) -> Option<Entry> {
        let (len, symbol) = self.single.first(window >> 16)?;
        decoded(len, symbol, window, (self.low, self.most))
    }
}

/// The entry for a symbol, whose code of `len` bits begins the window. `None` if its value has too many bits.
fn decoded(len: u32, symbol: u8, window: u32, (low, most): (u32, u32)) -> Option<Entry> {
    let (zeros, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
    // `len` is at most 16 and counts at most 15.
    let bits = |count: u32| if count == 0 { 0 } else { window << len >> (32 - count) };
    match (zeros, size) {
        (15, 0) => Some(Entry::value(len, 15, 0)),
        (_, 0) => Some(Entry::end(len + zeros, (1 << zeros) + bits(zeros))),
        _ if size > most => None,
        _ => Some(Entry::value(len + size, zeros, (extended(bits(size), size) << low) as i16)),
    }
}
