//! The header of PPM (P6) and PGM (P5): raw pixels after a few words of text.
//!
//! In: the bytes of a file. Out: its size, and the place of its rows. Only 8 bits per value.

use std::ops::Range;

use super::Header;
use crate::format::Format;
use crate::orientation::Orientation;
use crate::rect::Rect;

/// Upper limit of a header. It may contain comments.
const MAX_HEADER: usize = 4096;

/// The contents of the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pnm {
    pub width: u32,
    pub height: u32,
    pub channels: u8,
    /// Where the pixels begin.
    data: u16,
}

impl Pnm {
    /// Whether a file begins as one of this kind.
    pub(crate) fn is_magic(file: &[u8]) -> bool {
        matches!(file, [b'P', b'5' | b'6', next, ..] if next.is_ascii_whitespace() || *next == b'#')
    }

    /// Reads the header. `None` if the file has another format.
    pub(crate) fn read(file: &[u8]) -> Option<Self> {
        if !Self::is_magic(file) {
            return None;
        }
        let channels = if file[1] == b'5' { 1 } else { 3 };
        let mut words = Words { bytes: &file[..file.len().min(MAX_HEADER)], at: 2 };
        let (width, height, max_value) = (words.number()?, words.number()?, words.number()?);
        // One blank separates the last word from the pixels.
        let data = words.at + 1;
        let is_blank = words.bytes.get(words.at).is_some_and(u8::is_ascii_whitespace);
        let this = Self { width, height, channels, data: data as u16 };
        (max_value == 255 && is_blank && this.is_sound()).then_some(this)
    }

    /// Whether there are pixels, and not too many to count.
    fn is_sound(&self) -> bool {
        // Later arithmetic on row offsets relies on this check and cannot overflow.
        let pixels = u64::from(self.width) * u64::from(self.height);
        let end = pixels.checked_mul(self.channels.into()).and_then(|bytes| bytes.checked_add(self.data.into()));
        pixels > 0 && end.is_some()
    }

    /// The general header.
    pub(crate) fn header(&self) -> Header {
        let Self { width, height, .. } = *self;
        Header { format: Format::Pnm, width, height, orientation: Orientation::IDENTITY, needs_whole: false }
    }

    fn row_bytes(&self) -> u64 {
        u64::from(self.width) * u64::from(self.channels)
    }

    /// The bytes of the rows of a crop.
    pub(crate) fn rows(&self, crop: Rect) -> Option<Range<u64>> {
        let row = |number: u32| u64::from(self.data) + u64::from(number) * self.row_bytes();
        crop.is_inside(self.width, self.height).then(|| row(crop.top)..row(crop.bottom()))
    }

    /// The bytes of a crop's columns in each row.
    pub(crate) fn columns(&self, crop: Rect) -> Range<usize> {
        let channels = usize::from(self.channels);
        crop.left as usize * channels..crop.right() as usize * channels
    }

    /// A part of it as a picture of its own, without a header. `None` if it does not lie inside.
    pub(crate) fn part(&self, rect: Rect) -> Option<Self> {
        let Rect { width, height, .. } = rect;
        rect.is_inside(self.width, self.height).then_some(Self { width, height, data: 0, ..*self })
    }

    /// Bytes that [`Pnm::pack`] writes.
    pub(crate) const PACKED_BYTES: usize = 11;

    /// Writes it as part of an index or of a trimmed picture.
    pub(crate) fn pack(&self, out: &mut Vec<u8>) {
        out.extend(self.width.to_le_bytes());
        out.extend(self.height.to_le_bytes());
        out.push(self.channels);
        out.extend(self.data.to_le_bytes());
    }

    /// Reads what [`Pnm::pack`] wrote.
    pub(crate) fn unpack(bytes: &[u8]) -> Option<Self> {
        let [w0, w1, w2, w3, h0, h1, h2, h3, channels, d0, d1] = *<&[u8; Self::PACKED_BYTES]>::try_from(bytes).ok()?;
        let this = Self {
            width: u32::from_le_bytes([w0, w1, w2, w3]),
            height: u32::from_le_bytes([h0, h1, h2, h3]),
            channels,
            data: u16::from_le_bytes([d0, d1]),
        };
        (matches!(channels, 1 | 3) && this.is_sound()).then_some(this)
    }
}

/// Words of text with comments between them.
struct Words<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Words<'_> {
    fn number(&mut self) -> Option<u32> {
        loop {
            match self.bytes.get(self.at)? {
                b'#' => self.at += self.bytes[self.at..].iter().position(|&byte| byte == b'\n')?,
                byte if byte.is_ascii_whitespace() => self.at += 1,
                _ => break,
            }
        }
        let digits = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let text = std::str::from_utf8(&self.bytes[self.at..self.at + digits]).ok()?;
        self.at += digits;
        text.parse().ok()
    }
}
