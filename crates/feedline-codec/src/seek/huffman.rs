//! Huffman codes of JPEG: their definition in files, and tables for fast decoding.
//!
//! In: a definition. Out: symbols, or whole runs of coefficients. Always true: invalid bits give `None`, and a table has at most
//! 2^[`LOOK`] entries.

use super::bits::BitReader;

/// Bits that index the tables. Longer codes take a slower path.
const LOOK: u32 = 11;

/// A Huffman code as a file defines it: how many codes of each length, and their symbols in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Code {
    pub counts: [u8; 16],
    pub symbols: Vec<u8>,
}

impl Code {
    /// Reads a definition. Returns the rest. `None` if it is truncated or not a prefix code.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (counts, rest) = bytes.split_first_chunk::<16>()?;
        let total = counts.iter().map(|&count| usize::from(count)).sum::<usize>();
        let (symbols, rest) = rest.split_at_checked(total)?;
        let code = Self { counts: *counts, symbols: symbols.to_vec() };
        // Rejects codes that do not fit into their length. A code of ones only is rejected too, because libjpeg refuses it.
        let fits = code.codes().all(|(code, len, _)| code + 1 < 1 << len);
        (total <= 256 && fits).then_some((code, rest))
    }

    /// Code, length and symbol of each code, shorter ones first.
    pub(super) fn codes(&self) -> impl Iterator<Item = (u32, u32, u8)> {
        let lengths = (1..=16_u32).flat_map(|len| std::iter::repeat_n(len, usize::from(self.counts[len as usize - 1])));
        let mut code = 0_u32;
        let mut last_len = 1;
        lengths.zip(&self.symbols).map(move |(len, &symbol)| {
            // Canonical Huffman codes (T.81, Annex C): consecutive numbers, with a zero appended where the length grows.
            code <<= len - last_len;
            last_len = len;
            let this = code;
            code += 1;
            (this, len, symbol)
        })
    }
}

/// Reads one symbol at a time.
#[derive(Debug)]
pub(super) struct Symbols {
    /// For each value of the next [`LOOK`] bits: length << 8 | symbol, or 0 if the code is longer.
    short: Box<[u16; 1 << LOOK]>,
    /// For each length: the first value after its last code, left-aligned to 16 bits, and the number to add to a code to get the
    /// place of its symbol. (0, 0) if no code has this length.
    long: [(u32, i32); 17],
    /// The symbols, in the order of their codes.
    in_order: Vec<u8>,
}

impl Symbols {
    pub(super) fn new(code: &Code) -> Self {
        let mut short = Box::new([0_u16; 1 << LOOK]);
        let mut long = [(0, 0); 17];
        for (number, (value, len, symbol)) in code.codes().enumerate() {
            if len <= LOOK {
                let first = (value as usize) << (LOOK - len);
                short[first..first + (1 << (LOOK - len))].fill((len as u16) << 8 | u16::from(symbol));
            }
            // Codes of one length are consecutive, so the place of a symbol is its code plus a constant. The last code of a length
            // sets the entry.
            long[len as usize] = ((value + 1) << (16 - len), number as i32 - value as i32);
        }
        Self { short, long, in_order: code.symbols.clone() }
    }

    /// Length and symbol of the next code. The reader needs at least 16 valid bits and does not advance.
    #[inline]
    pub(super) fn next(&self, bits: &BitReader<'_>) -> Option<(u32, u8)> {
        self.first(bits.peek(16))
    }

    /// Length and symbol of the code at the beginning of 16 bits.
    #[inline]
    pub(super) fn first(&self, window: u32) -> Option<(u32, u8)> {
        let entry = self.short[(window >> (16 - LOOK)) as usize];
        if entry != 0 { Some((u32::from(entry >> 8), entry as u8)) } else { self.first_long(window) }
    }

    #[cold]
    fn first_long(&self, window: u32) -> Option<(u32, u8)> {
        let len = (LOOK + 1..=16).find(|&len| window < self.long[len as usize].0)?;
        let place = (window >> (16 - len)) as i32 + self.long[len as usize].1;
        Some((len, *self.in_order.get(usize::try_from(place).ok()?)?))
    }
}

/// Skips the AC coefficients of blocks, several per step, without decoding their values.
#[derive(Debug)]
pub(super) struct Runs {
    /// For each value of the next [`LOOK`] bits, all coefficients whose codes are complete in them. From the lowest bit: the bits
    /// to consume (5), the number of coefficients (7), and, as bit 15, whether the block ends. [`NO_STEP`] if no code is complete.
    steps: Box<[u16; 1 << LOOK]>,
    single: Symbols,
}

/// Places in an entry of [`Runs::steps`].
const RUN_SHIFT: u32 = 5;
const RUN_MASK: u16 = 0x7f;
const END: u16 = 1 << 15;
/// More coefficients than a block has, so `skip_block` takes the slow path.
const NO_STEP: u16 = RUN_MASK << RUN_SHIFT;

impl Runs {
    pub(super) fn new(code: &Code) -> Self {
        let single = Symbols::new(code);
        let mut steps = Box::new([0; 1 << LOOK]);
        for (window, entry) in (0..).zip(steps.iter_mut()) {
            *entry = step(&single.short, window);
        }
        Self { steps, single }
    }

    /// Skips the AC coefficients of a block. `None` if they are invalid.
    #[inline]
    pub(super) fn skip_block(&self, bits: &mut BitReader<'_>) -> Option<()> {
        let mut place = 1;
        loop {
            bits.refill();
            // A step takes at most 26 bits: codes of 11 bits, and the 15 bits of the last value. So two need no refill.
            for _ in 0..2 {
                let step = self.steps[bits.peek(LOOK) as usize];
                let run = u32::from(step >> RUN_SHIFT & RUN_MASK);
                if place + run >= 64 {
                    // The slow path, one symbol at a time: no complete code, or the step might cross the end of the block.
                    bits.refill();
                    let (len, symbol) = self.single.next(bits)?;
                    bits.consume(len);
                    if pass(symbol, &mut place, bits)? {
                        return Some(());
                    }
                    break;
                }
                place += run;
                bits.consume(u32::from(step & 31));
                if step & END != 0 {
                    return Some(());
                }
            }
        }
    }
}

/// Skips one coefficient, or a run of 16 zeros. Returns whether the block ends. `None` if the coefficients do not fit into it.
#[inline]
fn pass(symbol: u8, place: &mut u32, bits: &mut BitReader<'_>) -> Option<bool> {
    let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
    match (run, size) {
        (15, 0) => *place += 16,
        (_, 0) => return Some(true),
        _ => {
            *place += run + 1;
            bits.consume(size);
        }
    }
    // 16 zeros must not reach the end of a block: EOB stands for that.
    if *place > 64 || (*place == 64 && size == 0) { None } else { Some(*place == 64) }
}

/// The entry of [`Runs::steps`] for a window of [`LOOK`] bits.
fn step(short: &[u16; 1 << LOOK], window: u32) -> u16 {
    let (mut used, mut run, mut end) = (0_u32, 0_u32, 0);
    while used < LOOK {
        let entry = short[((window << used) & ((1 << LOOK) - 1)) as usize];
        let (len, symbol) = (u32::from(entry >> 8), entry as u8);
        if len == 0 || used + len > LOOK {
            break;
        }
        let size = u32::from(symbol & 15);
        let next_run = match (symbol >> 4, size) {
            (15, 0) => 16,
            (_, 0) => 0,
            (zeros, _) => u32::from(zeros) + 1,
        };
        // A block has 63 AC coefficients. The slow path handles the last one, so a longer step would never be taken.
        if run + next_run > 62 {
            break;
        }
        used += len + size;
        run += next_run;
        if size == 0 && next_run == 0 {
            end = END;
            break;
        }
    }
    if used == 0 { NO_STEP } else { used as u16 | (run as u16) << RUN_SHIFT | end }
}

/// Reads the DC difference of a block.
#[inline]
pub(super) fn difference(symbols: &Symbols, bits: &mut BitReader<'_>) -> Option<i32> {
    bits.refill();
    let (len, category) = symbols.next(bits)?;
    bits.consume(len);
    let size = u32::from(category);
    if size == 0 {
        return Some(0);
    }
    if size > 15 {
        return None;
    }
    let value = extended(bits.peek(size), size);
    bits.consume(size);
    Some(value)
}

/// The signed number with these bits. There are `size` of them, at least one.
#[inline]
pub(super) fn extended(bits: u32, size: u32) -> i32 {
    let value = bits as i32;
    // EXTEND of T.81: if the first bit is 0, the number is negative: bits - (2^size - 1).
    if value < 1 << (size - 1) { value - (1 << size) + 1 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_of_ones_only_is_refused_as_libjpeg_refuses_it() {
        let definition = |counts: &[u8], symbols: &[u8]| {
            let mut bytes = [0; 16];
            bytes[..counts.len()].copy_from_slice(counts);
            [&bytes[..], symbols].concat()
        };
        assert!(Code::read(&definition(&[1, 1], &[4, 7])).is_some(), "0 and 10");
        assert!(Code::read(&definition(&[2], &[4, 7])).is_none(), "0 and 1");
        assert!(Code::read(&definition(&[0, 4], &[1, 2, 3, 4])).is_none(), "00, 01, 10 and 11");
        assert!(Code::read(&definition(&[3], &[1, 2, 3])).is_none(), "more codes than one bit has");
    }
}
