//! The first directory of a TIFF file: how its pixels are stored, and where.
//!
//! In: the bytes of a file. Out: a [`Tiff`]. Lists of offsets are read on demand, so nothing is allocated. All numbers may be
//! hostile. Always true: sides are not zero, there are 1 to 8 samples of 1, 2, 4, 8 or 16 bits, and a row of a tile is at most
//! about as long as a row of the picture.

use std::ops::Range;

use crate::error::CodecError;
use crate::format::Format;

/// How bytes are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TiffCompression {
    None,
    Lzw,
    Deflate,
    PackBits,
}

/// What samples mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TiffColour {
    /// One sample, and perhaps others that are dropped. If inverted, 0 is white.
    Grey { is_inverted: bool },
    /// Three samples, and perhaps others that are dropped.
    Rgb,
    /// Indices into the colour map.
    Palette,
}

/// The values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Values {
    /// Where they are in the file.
    at: usize,
    count: u32,
    /// Bytes of each.
    size: usize,
}

/// The pixels of the first picture of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiff {
    pub width: u32,
    pub height: u32,
    pub bits: u32,
    pub samples: u32,
    pub colour: TiffColour,
    pub compression: TiffCompression,
    /// Whether samples are stored as the difference from the pixel to the left.
    pub has_differences: bool,
    /// Whether each sample has tiles or strips of its own.
    pub is_planar: bool,
    /// Width and height of a tile. A strip is as wide as the picture.
    pub tile: (u32, u32),
    pub is_little_endian: bool,
    offsets: Values,
    lengths: Values,
    colour_map: Option<Values>,
}

/// Reads numbers in the byte order of the file.
#[derive(Clone, Copy)]
struct Reader<'a> {
    bytes: &'a [u8],
    is_little_endian: bool,
}

impl Reader<'_> {
    fn number(&self, at: usize, size: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..at.checked_add(size)?)?;
        let add = |sum: u32, byte: &u8| sum << 8 | u32::from(*byte);
        Some(if self.is_little_endian { bytes.iter().rev().fold(0, add) } else { bytes.iter().fold(0, add) })
    }

    fn values(&self, at: usize) -> Option<Values> {
        let size = match self.number(at + 2, 2)? {
            1 | 2 | 6 | 7 => 1,
            3 | 8 => 2,
            4 | 9 | 13 => 4,
            _ => return None,
        };
        let count = self.number(at + 4, 4)?;
        // Up to four bytes are in the field itself, others at an offset.
        let is_inside = u64::from(count) * size as u64 <= 4;
        let at = if is_inside { at + 8 } else { self.number(at + 8, 4)? as usize };
        Some(Values { at, count, size })
    }

    fn value(&self, values: Values, number: u32) -> Option<u32> {
        let at = values.at.checked_add((number as usize).checked_mul(values.size)?)?;
        if number < values.count { self.number(at, values.size) } else { None }
    }
}

/// Most samples of a pixel.
const MAX_SAMPLES: u32 = 8;
/// A tile may be wider than the picture by this many pixels.
const MAX_PADDING: u32 = 4096;
/// A row is in memory as it is stored.
const MAX_ROW_BYTES: u64 = 64 << 20;

fn unsupported(reason: impl Into<String>) -> CodecError {
    CodecError::unsupported(Format::Tiff, reason)
}

fn damaged(reason: impl Into<String>) -> CodecError {
    CodecError::damaged(Format::Tiff, reason)
}

impl Tiff {
    /// Whether a file begins like a TIFF.
    pub(super) fn is_magic(bytes: &[u8]) -> bool {
        matches!(bytes, [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..])
    }

    /// Width and height.
    pub(super) fn size(bytes: &[u8]) -> Result<(u32, u32), CodecError> {
        let fields = Fields::read(bytes)?;
        Ok((fields.number(256)?, fields.number(257)?))
    }

    /// Reads the first directory.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, CodecError> {
        let fields = Fields::read(bytes)?;
        let (width, height) = (fields.number(256)?, fields.number(257)?);
        if width == 0 || height == 0 {
            return Err(damaged(format!("the size is {width} x {height}")));
        }
        let samples = fields.number_or(277, 1)?;
        if samples == 0 || samples > MAX_SAMPLES {
            return Err(unsupported(format!("{samples} samples in a pixel")));
        }
        let bits = fields.equal(258, 1, "bits of samples")?;
        if !matches!(bits, 1 | 2 | 4 | 8 | 16) {
            return Err(unsupported(format!("samples of {bits} bits")));
        }
        let format = fields.equal(339, 1, "formats of samples")?;
        if format != 1 {
            return Err(unsupported("samples that are signed or floating-point numbers"));
        }
        let colour = match fields.number_or(262, 1)? {
            inverted @ (0 | 1) => TiffColour::Grey { is_inverted: inverted == 0 },
            2 if samples >= 3 && bits >= 8 => TiffColour::Rgb,
            3 if bits <= 8 => TiffColour::Palette,
            other => return Err(unsupported(format!("colours of kind {other} with {samples} samples of {bits} bits"))),
        };
        if bits < 8 && samples > 1 {
            return Err(unsupported(format!("{samples} samples of {bits} bits")));
        }
        if fields.number_or(266, 1)? != 1 {
            return Err(unsupported("bytes whose first pixel is in the low bits"));
        }
        let compression = match fields.number_or(259, 1)? {
            1 => TiffCompression::None,
            5 => TiffCompression::Lzw,
            8 | 32946 => TiffCompression::Deflate,
            32773 => TiffCompression::PackBits,
            other => return Err(unsupported(format!("compression {other}"))),
        };
        let has_differences = match fields.number_or(317, 1)? {
            1 => false,
            2 if bits >= 8 => true,
            other => return Err(unsupported(format!("predictor {other} with samples of {bits} bits"))),
        };
        let is_planar = samples > 1 && fields.number_or(284, 1)? == 2;
        let is_tiled = fields.find(324).is_some();
        let tile = if is_tiled {
            (fields.number(322)?, fields.number(323)?)
        } else {
            (width, fields.number_or(278, height)?.min(height))
        };
        if tile.0 == 0 || tile.1 == 0 || tile.0 > width.saturating_mul(2).saturating_add(MAX_PADDING) {
            return Err(damaged(format!("tiles of {} x {} in a picture of {width} x {height}", tile.0, tile.1)));
        }
        let planes = if is_planar { samples } else { 1 };
        let row_bytes = u64::from(tile.0) * u64::from(samples / planes) * u64::from(bits) / 8;
        if row_bytes > MAX_ROW_BYTES {
            return Err(unsupported(format!("rows of {row_bytes} bytes")));
        }
        let (offsets, lengths) = if is_tiled { (324, 325) } else { (273, 279) };
        let tiff = Self {
            width,
            height,
            bits,
            samples,
            colour,
            compression,
            has_differences,
            is_planar,
            tile,
            is_little_endian: fields.reader.is_little_endian,
            offsets: fields.values(offsets)?,
            lengths: fields.values(lengths)?,
            colour_map: fields.find(320).and_then(|at| fields.reader.values(at)),
        };
        Ok(tiff)
    }

    /// The bytes of a tile in the file.
    pub(crate) fn tile_bytes(&self, bytes: &[u8], number: u32) -> Result<Range<usize>, CodecError> {
        let reader = Reader { bytes, is_little_endian: self.is_little_endian };
        let place = reader.value(self.offsets, number).zip(reader.value(self.lengths, number));
        let (start, len) = place.ok_or_else(|| damaged(format!("tile or strip {number} has no place")))?;
        let end = (start as usize).saturating_add(len as usize);
        if start as usize >= bytes.len() {
            let reason = format!("tile or strip {number} is at bytes {start}..{end}, the file ends at {}", bytes.len());
            return Err(CodecError::truncated(Format::Tiff, reason));
        }
        // What is missing at the end is noticed if it is needed.
        Ok(start as usize..end.min(bytes.len()))
    }

    /// The colours of a palette with 8 bits for each channel.
    pub(crate) fn palette(&self, bytes: &[u8]) -> Result<[[u8; 3]; 256], CodecError> {
        let reader = Reader { bytes, is_little_endian: self.is_little_endian };
        let count = 1 << self.bits;
        let mut palette = [[0; 3]; 256];
        for (index, colour) in (0..count).zip(&mut palette) {
            for (channel, value) in (0..).zip(colour) {
                let found = self.colour_map.and_then(|map| reader.value(map, channel * count + index));
                // All reds, then all greens, then all blues, of 16 bits.
                *value = (found.ok_or_else(|| damaged("the colour map is incomplete"))? >> 8) as u8;
            }
        }
        Ok(palette)
    }
}

/// The fields of the first directory.
struct Fields<'a> {
    reader: Reader<'a>,
    /// Where the first field is.
    start: usize,
    count: usize,
}

impl<'a> Fields<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, CodecError> {
        let is_little_endian = bytes.first() == Some(&b'I');
        let reader = Reader { bytes, is_little_endian };
        let incomplete = || CodecError::truncated(Format::Tiff, "the directory is incomplete");
        if reader.number(2, 2) == Some(43) {
            return Err(unsupported("files of more than 4 GB (BigTIFF)"));
        }
        let at = reader.number(4, 4).ok_or_else(incomplete)? as usize;
        let count = reader.number(at, 2).ok_or_else(incomplete)? as usize;
        if bytes.len() - at < 2 + count * 12 {
            return Err(incomplete());
        }
        Ok(Self { reader, start: at + 2, count })
    }

    /// Where a field is.
    fn find(&self, tag: u32) -> Option<usize> {
        let mut fields = (0..self.count).map(|number| self.start + number * 12);
        fields.find(|&at| self.reader.number(at, 2) == Some(tag))
    }

    fn values(&self, tag: u32) -> Result<Values, CodecError> {
        let found = self.find(tag).and_then(|at| self.reader.values(at));
        found.ok_or_else(|| damaged(format!("field {tag} is missing or not a list of whole numbers")))
    }

    fn number(&self, tag: u32) -> Result<u32, CodecError> {
        let values = self.values(tag)?;
        self.reader.value(values, 0).ok_or_else(|| damaged(format!("field {tag} has no value")))
    }

    fn number_or(&self, tag: u32, default: u32) -> Result<u32, CodecError> {
        if self.find(tag).is_some() { self.number(tag) } else { Ok(default) }
    }

    /// The value of a field that has one for each sample. All must be equal.
    fn equal(&self, tag: u32, default: u32, what: &str) -> Result<u32, CodecError> {
        let first = self.number_or(tag, default)?;
        if self.find(tag).is_none() {
            return Ok(first);
        }
        let values = self.values(tag)?;
        let mut numbers = (0..values.count.min(MAX_SAMPLES)).map(|number| self.reader.value(values, number));
        if numbers.all(|number| number == Some(first)) {
            Ok(first)
        } else {
            Err(unsupported(format!("different {what} in a pixel")))
        }
    }
}
