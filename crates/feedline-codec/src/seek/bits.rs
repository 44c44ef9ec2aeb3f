//! Reads and writes bits of entropy-coded data, most significant first.
//!
//! In: bytes without stuffing. Out: bits, several at a time; or the other way round. Always true: zeros follow the last byte, and a
//! reader can tell that it read them. Whatever the bytes are, nothing outside of them is read.

use std::ops::Range;

/// Reads bits of bytes without stuffing. Zeros follow the last byte.
#[derive(Clone, Debug)]
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    /// The next byte that is not in the window.
    next: usize,
    /// The next bits, left-aligned. Bits after the `valid` ones are zero or already from `next`.
    window: u64,
    valid: u32,
}

/// The state of a [`BitReader`] that paused.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BitCursor {
    next: usize,
    window: u64,
    valid: u32,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self::resume(bytes, BitCursor::default())
    }

    /// Continues where a reader of the same bytes paused.
    #[inline]
    pub(super) fn resume(bytes: &'a [u8], BitCursor { next, window, valid }: BitCursor) -> Self {
        Self { bytes, next, window, valid }
    }

    /// The state to resume from.
    #[inline]
    pub(super) fn pause(&self) -> BitCursor {
        let Self { next, window, valid, .. } = *self;
        BitCursor { next, window, valid }
    }

    /// Goes to bit `position`.
    pub(super) fn go_to(&mut self, position: usize) {
        (self.next, self.window, self.valid) = (position / 8, 0, 0);
        self.refill();
        self.consume((position % 8) as u32);
    }

    /// Makes at least 56 bits valid.
    #[inline]
    pub(super) fn refill(&mut self) {
        let bytes = self.bytes.get(self.next..).and_then(|rest| rest.first_chunk());
        let chunk = match bytes {
            Some(bytes) => u64::from_be_bytes(*bytes),
            None => last_bytes(self.bytes, self.next),
        };
        // The branchless refill of F. Giesen: load eight bytes, advance by whole bytes that fit, and set `valid` to 56..=63.
        // Bits that do not fit are loaded again next time, with the same values.
        self.window |= chunk >> self.valid;
        self.next += ((63 - self.valid) >> 3) as usize;
        self.valid |= 0b11_1000;
    }

    /// The next `count` bits, 1 to 32.
    #[inline]
    pub(super) fn peek(&self, count: u32) -> u32 {
        // `count` is at least 1, so the shift is below 64.
        (self.window >> (64 - count)) as u32
    }

    /// The next `count` bits, 0 to 32.
    #[inline]
    pub(super) fn peek_or_none(&self, count: u32) -> u64 {
        self.window >> 1 >> (63 - count)
    }

    /// Advances by `count` bits, which must be valid.
    #[inline]
    pub(super) fn consume(&mut self, count: u32) {
        self.window <<= count;
        self.valid -= count;
    }

    /// Advances by any number of bits.
    #[inline]
    pub(super) fn skip(&mut self, count: usize) {
        if count <= self.valid as usize && count < 64 {
            self.consume(count as u32);
        } else {
            self.go_to(self.position() + count);
        }
    }

    /// Number of bits read so far.
    #[inline]
    pub(super) fn position(&self) -> usize {
        self.next * 8 - self.valid as usize
    }

    /// Whether bits after the last byte were read.
    #[inline]
    pub(super) fn is_past_end(&self) -> bool {
        self.position() > self.bytes.len() * 8
    }
}

/// The last bytes, then zeros. Takes no reader by reference, so that the fields of a reader can stay in registers.
#[cold]
fn last_bytes(bytes: &[u8], next: usize) -> u64 {
    let mut last = [0; 8];
    let left = bytes.get(next..).unwrap_or_default();
    last[..left.len().min(8)].copy_from_slice(&left[..left.len().min(8)]);
    u64::from_be_bytes(last)
}

/// Appends bits to bytes.
#[derive(Debug)]
pub(super) struct BitWriter<'m> {
    bytes: &'m mut Vec<u8>,
    /// The last `pending` bits, fewer than 32, that are not in the bytes yet.
    window: u64,
    pending: u32,
}

impl<'m> BitWriter<'m> {
    pub(super) fn new(bytes: &'m mut Vec<u8>) -> Self {
        Self { bytes, window: 0, pending: 0 }
    }

    /// Appends a value of `count` bits, up to 32.
    #[inline]
    pub(super) fn put(&mut self, value: u32, count: u32) {
        self.window = self.window << count | u64::from(value);
        self.pending += count;
        if self.pending >= 32 {
            // `pending` is below 32 before and `count` at most 32, so the 64-bit window never overflows.
            self.pending -= 32;
            self.bytes.extend_from_slice(&((self.window >> self.pending) as u32).to_be_bytes());
        }
    }

    /// Appends bits of other bytes, eight bytes at a time once the current byte is full.
    pub(super) fn copy(&mut self, bytes: &[u8], bits: Range<usize>) {
        // First fill the byte under construction, so that whole words can follow.
        let first = (self.pending.next_multiple_of(8) - self.pending) as usize;
        let start = bits.end.min(bits.start + first);
        self.copy_some(bytes, bits.start..start);
        let source = &bytes[(start / 8).min(bytes.len())..];
        // A word is assembled from nine bytes, so these must exist.
        let words = ((bits.end - start) / 64).min(source.len().saturating_sub(1) / 8);
        if words > 0 {
            let (shift, whole) = (start % 8, (self.pending / 8) as usize);
            self.bytes.extend_from_slice(&(self.window as u32).to_be_bytes()[4 - whole..]);
            (self.window, self.pending) = (0, 0);
            let old = self.bytes.len();
            self.bytes.resize(old + 8 * words, 0);
            let (targets, _) = self.bytes[old..].as_chunks_mut::<8>();
            for (target, nine) in targets.iter_mut().zip(source.windows(9).step_by(8)) {
                let (eight, ninth) = nine.split_first_chunk().expect("nine bytes are more than eight");
                // For shift 0 the ninth byte is shifted out completely: a u64 may be shifted by 8.
                *target = (u64::from_be_bytes(*eight) << shift | u64::from(ninth[0]) >> (8 - shift)).to_be_bytes();
            }
        }
        self.copy_some(bytes, start + 64 * words..bits.end);
    }

    fn copy_some(&mut self, bytes: &[u8], bits: Range<usize>) {
        let mut reader = BitReader::new(bytes);
        reader.go_to(bits.start);
        let mut left = bits.len();
        while left > 0 {
            reader.refill();
            let count = left.min(32) as u32;
            self.put(reader.peek(count), count);
            reader.consume(count);
            left -= count as usize;
        }
    }

    /// Fills the last byte with zeros.
    pub(super) fn finish(self) {
        // Left-aligned in 32 bits, so that the first bytes are those to write.
        let last = (self.window << (32 - self.pending)) as u32;
        self.bytes.extend_from_slice(&last.to_be_bytes()[..self.pending.div_ceil(8) as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let byte = |n: usize| if n.is_multiple_of(11) { 0xff } else { (n.wrapping_mul(2_654_435_761) >> 13) as u8 };
        (0..len).map(byte).collect()
    }

    #[test]
    fn reading_gives_the_bits_and_then_zeros() {
        let bytes = noise(40);
        for start in 0..64 {
            let mut reader = BitReader::new(&bytes);
            reader.go_to(start);
            for at in start..40 * 8 {
                reader.refill();
                assert_eq!(reader.position(), at);
                assert_eq!(reader.peek(1), u32::from(bytes[at / 8] >> (7 - at % 8) & 1));
                reader.consume(1);
            }
            assert!(!reader.is_past_end());
            reader.refill();
            assert_eq!(reader.peek(32), 0);
            reader.consume(1);
            assert!(reader.is_past_end());
        }
    }

    #[test]
    fn copied_bits_follow_each_other_without_gaps() {
        let bytes = noise(60);
        let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
        let lengths = [[1, 7, 56], [3, 57, 200], [64, 8, 100], [13, 0, 340], [129, 200, 353], [300, 64, 128]];
        for (lengths, shift) in lengths.into_iter().flat_map(|lengths| (0..8).map(move |shift| (lengths, shift))) {
            let mut copy = Vec::new();
            let mut writer = BitWriter::new(&mut copy);
            let mut expected = Vec::new();
            for (start, len) in [shift, 83 + shift, 120 + shift].into_iter().zip(lengths) {
                writer.copy(&bytes, start..start + len);
                expected.extend((start..start + len).map(|at| bit(&bytes, at)));
            }
            writer.put(0b101, 3);
            expected.extend([1, 0, 1]);
            writer.finish();
            assert_eq!(copy.len(), expected.len().div_ceil(8));
            expected.resize(copy.len() * 8, 0);
            assert!((0..expected.len()).all(|at| bit(&copy, at) == expected[at]), "{lengths:?} from {shift} on");
        }
    }
}
