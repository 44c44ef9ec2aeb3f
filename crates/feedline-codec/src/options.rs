//! How a picture is decoded, and where its pixels go.
//!
//! The caller passes [`DecodeOptions`]. A decoder gets them together with its output memory, as a [`Target`].

use crate::error::CodecError;
use crate::format::Format;
use crate::header::Header;
use crate::memory::grow;
use crate::orientation::Orientation;
use crate::scale::Scale;

/// The pixel format of a decoded picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Three channels. Grey is repeated, palettes are looked up, alpha is dropped without blending.
    Rgb,
    /// One channel: a JPEG's own luma, else 0.299 R + 0.587 G + 0.114 B as Pillow rounds it.
    Grey,
    /// One channel unchanged: palette index or grey value (of 16 bits the high byte; 1, 2 and 4 bits of grey are spread
    /// over 0..=255). A picture of more channels is an error.
    Mask,
    /// As [`Mode::Rgb`], with 16 bits a channel in native byte order. Channels of 8 bits are stretched: 255 becomes 65535.
    Rgb16,
    /// As [`Mode::Grey`], with 16 bits.
    Grey16,
}

impl Mode {
    /// Channels of a pixel.
    pub fn channels(self) -> u8 {
        match self {
            Self::Rgb | Self::Rgb16 => 3,
            Self::Grey | Self::Grey16 | Self::Mask => 1,
        }
    }

    /// Bytes of a pixel.
    pub fn pixel_bytes(self) -> u8 {
        if self.is_deep() { 2 * self.channels() } else { self.channels() }
    }

    /// Whether channels have 16 bits.
    pub fn is_deep(self) -> bool {
        matches!(self, Self::Rgb16 | Self::Grey16)
    }

    /// The same mode with 8 bits a channel.
    pub(crate) fn of_8_bits(self) -> Self {
        match self {
            Self::Rgb16 => Self::Rgb,
            Self::Grey16 => Self::Grey,
            other => other,
        }
    }
}

/// The options of decoding.
#[derive(Clone, Copy)]
pub struct DecodeOptions<'a> {
    /// The pixel format.
    pub mode: Mode,
    /// Whether the EXIF orientation is applied.
    pub exif: bool,
    /// Upper limit of pixels. Checked before memory is allocated.
    pub max_pixels: u64,
    /// Approximate pixels of a JPEG, faster: at this scale, of each block only the coefficients whose row and column are
    /// below 8 times the scale, by libjpeg's fast transform. Exact pixels if none.
    pub fast: Option<Scale>,
    /// Called every few MB of output. If it returns true, decoding ends with [`CodecError::Cancelled`].
    pub cancel: &'a dyn Fn() -> bool,
}

impl DecodeOptions<'_> {
    /// The scale of the output.
    pub(crate) fn scale(&self) -> Scale {
        self.fast.unwrap_or_default()
    }

    /// The orientation to apply.
    pub(crate) fn orientation(&self, header: &Header) -> Orientation {
        if self.exif { header.orientation } else { Orientation::IDENTITY }
    }

    /// Rejects too many pixels before memory is allocated.
    pub(crate) fn check_header(&self, header: &Header) -> Result<(), CodecError> {
        let Header { width, height, .. } = *header;
        if u64::from(width) * u64::from(height) > self.max_pixels {
            return Err(CodecError::TooManyPixels { width, height, limit: self.max_pixels });
        }
        self.check_cancel()
    }

    pub(crate) fn check_cancel(&self) -> Result<(), CodecError> {
        if (self.cancel)() { Err(CodecError::Cancelled) } else { Ok(()) }
    }
}

/// Where a decoder writes: the size from the header, and memory that is allocated on demand.
pub(crate) struct Target<'a, 'o> {
    pub width: u32,
    pub height: u32,
    pub options: &'a DecodeOptions<'o>,
    pub pixels: &'a mut Vec<u8>,
}

impl Target<'_, '_> {
    /// Memory for this many pixels, of the whole picture or a part of it.
    pub(crate) fn pixels(&mut self, width: u32, height: u32) -> Result<&mut [u8], CodecError> {
        let bytes = self.options.mode.pixel_bytes();
        grow(self.pixels, u64::from(width) * u64::from(height) * u64::from(bytes))
    }

    /// Rejects a file in which the decoder finds another size than [`crate::read_header`], whose size was checked against the limit.
    pub(crate) fn check_size(&self, format: Format, width: u32, height: u32) -> Result<(), CodecError> {
        if (width, height) == (self.width, self.height) {
            return Ok(());
        }
        let reason = format!("two sizes, {} x {} and {width} x {height}", self.width, self.height);
        Err(CodecError::damaged(format, reason))
    }
}
