//! Bits of entropy-coded data in and out, most significant first.

/// Reads bits of bytes without stuffing; behind the last byte come zeros.
#[derive(Clone, Debug)]
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    /// The next byte that is not in the window.
    next: usize,
    /// The next bits, left-aligned; those behind the `valid` ones are zero or what `next` points to.
    window: u64,
    valid: u32,
}

impl<'a> BitReader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, next: 0, window: 0, valid: 0 }
    }

    /// Begins at bit `position`.
    pub fn at(bytes: &'a [u8], position: usize) -> Self {
        let mut this = Self { bytes, next: position / 8, window: 0, valid: 0 };
        this.refill();
        this.consume((position % 8) as u32);
        this
    }

    /// Makes at least 56 bits valid.
    #[inline]
    pub fn refill(&mut self) {
        let bytes = self.bytes.get(self.next..self.next + 8).and_then(|bytes| bytes.first_chunk());
        let chunk = bytes.map_or_else(|| self.last_bytes(), |bytes| u64::from_be_bytes(*bytes));
        self.window |= chunk >> self.valid;
        self.next += ((63 - self.valid) >> 3) as usize;
        self.valid |= 0b11_1000;
    }

    #[cold]
    fn last_bytes(&self) -> u64 {
        let mut last = [0; 8];
        let left = self.bytes.get(self.next..).unwrap_or_default();
        last[..left.len().min(8)].copy_from_slice(&left[..left.len().min(8)]);
        u64::from_be_bytes(last)
    }

    /// The next `count` bits, 1 to 32.
    #[inline]
    pub fn peek(&self, count: u32) -> u32 {
        (self.window >> (64 - count)) as u32
    }

    /// Goes on by `count` bits, which are valid.
    #[inline]
    pub fn consume(&mut self, count: u32) {
        self.window <<= count;
        self.valid -= count;
    }

    /// Bits read so far.
    #[inline]
    pub fn position(&self) -> usize {
        self.next * 8 - self.valid as usize
    }

    /// Whether bits behind the last byte were read.
    #[inline]
    pub fn is_behind_end(&self) -> bool {
        self.position() > self.bytes.len() * 8
    }
}

/// Writes bits with a zero byte stuffed behind each 0xff.
#[derive(Debug)]
pub(super) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Bits not yet written, right-aligned.
    window: u64,
    /// How many, below 8 between calls.
    pending: u32,
}

impl<'a> BitWriter<'a> {
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, window: 0, pending: 0 }
    }

    /// Writes the lowest `count` bits, at most 48.
    #[inline]
    pub fn put(&mut self, value: u64, count: u32) {
        self.window = (self.window << count) | (value & ((1 << count) - 1));
        self.pending += count;
        while self.pending >= 8 {
            self.pending -= 8;
            self.byte((self.window >> self.pending) as u8);
        }
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        self.out.push(byte);
        if byte == 0xff {
            self.out.push(0);
        }
    }

    /// Copies the bits `range` of `bytes`, which hold them.
    pub fn copy(&mut self, bytes: &[u8], range: std::ops::Range<usize>) {
        let (mut at, end) = (range.start, range.end);
        // 48 bits a turn: six bytes without 0xff, the usual case, go out in one store.
        while end.saturating_sub(at) >= 48 {
            let Some(chunk) = bytes.get(at / 8..).and_then(|bytes| bytes.first_chunk::<8>()) else { break };
            let bits = (u64::from_be_bytes(*chunk) << (at % 8)) >> 16;
            let joined = (self.window << 48) | bits;
            let whole = joined >> self.pending;
            self.window = joined;
            let inverted = !whole & 0xffff_ffff_ffff;
            let has_marker_byte = inverted.wrapping_sub(0x0101_0101_0101) & !inverted & 0x8080_8080_8080 != 0;
            if has_marker_byte {
                for shift in (0..6).rev() {
                    self.byte((whole >> (8 * shift)) as u8);
                }
            } else {
                self.out.extend_from_slice(&(whole << 16).to_be_bytes()[..6]);
            }
            at += 48;
        }
        while at < end {
            let count = (end - at).min(8 - at % 8);
            let byte = bytes.get(at / 8).copied().unwrap_or_default();
            let value = u64::from(byte) >> (8 - at % 8 - count);
            self.put(value, count as u32);
            at += count;
        }
    }

    /// Fills the last byte with ones.
    pub fn finish(mut self) {
        if self.pending > 0 {
            self.put(0xff, 8 - self.pending);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let byte = |n: usize| if n.is_multiple_of(11) { 0xff } else { (n.wrapping_mul(2_654_435_761) >> 13) as u8 };
        (0..len).map(byte).collect()
    }

    fn unstuffed(bytes: &[u8]) -> Vec<u8> {
        let is_stuffing = |n: usize| n > 0 && bytes[n - 1] == 0xff && bytes[n] == 0;
        (0..bytes.len()).filter(|&n| !is_stuffing(n)).map(|n| bytes[n]).collect()
    }

    #[test]
    fn copied_bits_are_the_bits_whatever_the_alignment() {
        let bytes = noise(300);
        let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
        for start in 0..20 {
            for (before, len) in [(0, 0), (1, 7), (3, 8), (5, 61), (7, 1999), (0, 2000), (4, 2300)] {
                let mut out = Vec::new();
                let mut writer = BitWriter::new(&mut out);
                writer.put(0, before);
                let end = (start + len).min(2400);
                writer.copy(&bytes, start..end);
                writer.finish();
                let out = unstuffed(&out);
                assert_eq!(out.len(), (before as usize + end - start).div_ceil(8));
                for at in start..end {
                    assert_eq!(bit(&out, at - start + before as usize), bit(&bytes, at), "{start} {before} {len} {at}");
                }
            }
        }
    }

    #[test]
    fn reading_gives_the_bits_and_then_zeros() {
        let bytes = noise(40);
        for start in 0..64 {
            let mut reader = BitReader::at(&bytes, start);
            for at in start..40 * 8 {
                reader.refill();
                assert_eq!(reader.position(), at);
                assert_eq!(reader.peek(1), u32::from(bytes[at / 8] >> (7 - at % 8) & 1));
                reader.consume(1);
            }
            assert!(!reader.is_behind_end());
            reader.refill();
            assert_eq!(reader.peek(32), 0);
            reader.consume(1);
            assert!(reader.is_behind_end());
        }
    }
}
