//! Compact numbers: variable-length integers, and fields of any number of bits.
//!
//! In: numbers. Out: bytes, and the numbers again. Always true: truncated bytes give `None` or zeros, never a panic.

/// Reads packed numbers. Hostile bytes give `None`.
#[derive(Debug)]
pub(super) struct PackedReader<'a>(&'a [u8]);

impl<'a> PackedReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The unread bytes.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(array)
    }

    pub(super) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        // LEB128, at most nine bytes: 63 bits. More bytes are invalid.
        for shift in (0..63).step_by(7) {
            let [byte] = *self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn signed(&mut self) -> Option<i64> {
        let value = self.number()?;
        // Zigzag: 0, -1, 1, -2, ... are stored as 0, 1, 2, 3, ...
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }
}

/// Writes 7 bits per byte, the lowest first.
pub(super) fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a number that may be negative.
pub(super) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_number(out, (value << 1 ^ value >> 63).cast_unsigned());
}

/// Bits needed for a value of `0..=most`.
pub(super) fn width_of(most: u64) -> u32 {
    64 - most.leading_zeros()
}

/// Fields of bits, lowest first.
#[derive(Debug, Default)]
pub(super) struct FieldWriter {
    bytes: Vec<u8>,
    window: u64,
    pending: u32,
}

impl FieldWriter {
    /// Adds a field of up to 32 bits.
    pub(super) fn put(&mut self, value: u64, width: u32) {
        self.window |= value << self.pending;
        self.pending += width;
        while self.pending >= 8 {
            self.bytes.push(self.window as u8);
            self.window >>= 8;
            self.pending -= 8;
        }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.pending > 0 {
            self.bytes.push(self.window as u8);
        }
        self.bytes
    }
}

/// The field of up to 32 bits at bit `at`. Zeros follow the last byte.
pub(super) fn field(bytes: &[u8], at: usize, width: u32) -> u64 {
    let mut window = [0; 8];
    let rest = bytes.get(at / 8..).unwrap_or_default();
    match rest.first_chunk() {
        Some(chunk) => window = *chunk,
        None => window[..rest.len()].copy_from_slice(rest),
    }
    // At most 7 + 32 bits are needed, so eight bytes are enough.
    (u64::from_le_bytes(window) >> (at % 8)) & ((1 << width) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_fields_come_back() {
        let mut bytes = Vec::new();
        let numbers = [0, 1, -1, 127, -128, 300, i64::from(u32::MAX), -70_000];
        for value in numbers {
            put_signed(&mut bytes, value);
        }
        let mut reader = PackedReader::new(&bytes);
        assert!(numbers.iter().all(|&value| reader.signed() == Some(value)));
        assert_eq!(reader.number(), None);

        let mut writer = FieldWriter::default();
        let fields: Vec<(u64, u32)> = (0..100).map(|n| (n * 7 % (1 << (n % 20)), (n % 20) as u32)).collect();
        for &(value, width) in &fields {
            writer.put(value, width);
        }
        let bytes = writer.finish();
        let mut at = 0;
        for (value, width) in fields {
            assert_eq!(field(&bytes, at, width), value);
            at += width as usize;
        }
        assert_eq!(field(&bytes, at + 1000, 32), 0);
    }
}
