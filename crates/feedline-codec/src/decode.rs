//! From the bytes of a file to pixels.
//!
//! In: a whole file, and what the caller wants of it. Out: a [`Picture`], in memory that is used again from picture to
//! picture. The limit on pixels is checked on the header, before any memory is taken. Which decoder runs is decided by
//! the magic bytes; the decoders are in `formats`.

use std::cell::Cell;

use crate::error::CodecError;
use crate::formats;
use crate::header::{Format, Header, read_header};
use crate::orientation::Orientation;
use crate::view::View;

/// What the pixels of a decoded picture mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Three channels. Grey is repeated, palettes are looked up, alpha is dropped without blending.
    Rgb,
    /// One channel: a JPEG's own luma, else 0.299 R + 0.587 G + 0.114 B as Pillow rounds it.
    Grey,
    /// One channel unchanged: palette index or grey value (of 16 bits the high byte; 1, 2 and 4 bits of grey are spread
    /// over 0..=255). A picture of more channels is an error.
    Mask,
}

impl Mode {
    /// Bytes in a pixel.
    pub fn channels(self) -> u8 {
        match self {
            Self::Rgb => 3,
            Self::Grey | Self::Mask => 1,
        }
    }
}

/// The size of decoded pixels against those stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scale {
    /// As stored.
    #[default]
    Full,
    /// Half of each side.
    Half,
    /// A quarter of each side.
    Quarter,
    /// An eighth of each side.
    Eighth,
}

impl Scale {
    /// Stored pixels of one decoded pixel, along a side.
    pub fn divisor(self) -> u32 {
        match self {
            Self::Full => 1,
            Self::Half => 2,
            Self::Quarter => 4,
            Self::Eighth => 8,
        }
    }
}

/// What the caller wants of a file.
#[derive(Clone, Copy)]
pub struct DecodeOptions<'a> {
    /// What the pixels shall mean.
    pub mode: Mode,
    /// Whether the EXIF orientation is applied.
    pub exif: bool,
    /// More pixels than this are an error, found before memory is taken.
    pub max_pixels: u64,
    /// Approximate pixels of a JPEG, faster: at this scale, of each block only the coefficients whose row and column are
    /// below 8 times the scale, by libjpeg's fast transform. Exact pixels if none.
    pub fast: Option<Scale>,
    /// Asked every few MB of output; when true, decoding ends with [`CodecError::Cancelled`].
    pub cancel: &'a dyn Fn() -> bool,
}

impl DecodeOptions<'_> {
    /// The scale of what comes out.
    pub(crate) fn scale(&self) -> Scale {
        self.fast.unwrap_or_default()
    }

    /// The orientation to apply.
    pub(crate) fn orientation(&self, header: &Header) -> Orientation {
        if self.exif { header.orientation } else { Orientation::IDENTITY }
    }

    /// Refuses too many pixels, before memory is taken.
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

/// Decoded pixels: rows of pixels of channels, tightly packed.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Pixels in a row, after the orientation was applied.
    pub width: u32,
    /// Rows, after the orientation was applied.
    pub height: u32,
    /// Bytes in a pixel.
    pub channels: u8,
    /// The first `len()` bytes are the picture; what follows is left over from larger ones.
    pub pixels: Vec<u8>,
}

impl Picture {
    /// Bytes of the picture.
    pub fn len(&self) -> usize {
        self.width as usize * self.height as usize * usize::from(self.channels)
    }

    /// Whether there is no pixel in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Exactly the bytes of the picture.
    pub fn bytes(&self) -> &[u8] {
        &self.pixels[..self.len()]
    }

    /// The whole picture.
    pub fn view(&self) -> View<'_> {
        View::packed(self.bytes(), self.width, self.height, self.channels)
    }
}

/// Decodes into `picture.pixels`, whose memory is used again: nothing is allocated when it is long enough, and memory
/// that will be overwritten is not filled with zeros. After an error the picture is empty.
pub fn decode_into(bytes: &[u8], options: &DecodeOptions<'_>, picture: &mut Picture) -> Result<(), CodecError> {
    (picture.width, picture.height, picture.channels) = (0, 0, 0);
    let header = read_header(bytes)?;
    options.check_header(&header)?;
    let (width, height) = header.size_at(options.scale());
    let mut target = Target { width, height, options, pixels: &mut picture.pixels };
    match header.format {
        Format::Jpeg => formats::jpeg::decode(bytes, &mut target)?,
        Format::Png => formats::png::decode(bytes, &mut target)?,
        Format::Pnm => formats::pnm::decode(bytes, &mut target)?,
        Format::WebP | Format::Bmp | Format::Gif => formats::others::decode(bytes, header.format, &mut target)?,
    }

    picture.turn(options, options.orientation(&header), width, height)
}

impl Picture {
    /// Applies the orientation to pixels as stored, which then are the picture.
    pub(crate) fn turn(
        &mut self,
        options: &DecodeOptions<'_>,
        orientation: Orientation,
        width: u32,
        height: u32,
    ) -> Result<(), CodecError> {
        let channels = options.mode.channels();
        if orientation != Orientation::IDENTITY {
            options.check_cancel()?;
            with_scratch(|scratch| {
                if orientation.swaps_sides() {
                    grow(scratch, u64::from(width) * u64::from(height) * u64::from(channels))?;
                }
                orientation.apply(&mut self.pixels, scratch, width, height, channels);
                Ok::<(), CodecError>(())
            })?;
        }
        (self.width, self.height) = orientation.seen_size(width, height);
        self.channels = channels;
        Ok(())
    }
}

/// Where a decoder writes: the size the header promised, and memory that is taken only when asked for.
pub(crate) struct Target<'a, 'o> {
    pub width: u32,
    pub height: u32,
    pub options: &'a DecodeOptions<'o>,
    pub pixels: &'a mut Vec<u8>,
}

impl Target<'_, '_> {
    /// Memory for this many pixels, of the whole picture or a part of it.
    pub fn pixels(&mut self, width: u32, height: u32) -> Result<&mut [u8], CodecError> {
        let channels = self.options.mode.channels();
        grow(self.pixels, u64::from(width) * u64::from(height) * u64::from(channels))
    }

    /// A decoder that finds another size than the header has walked over other bytes than the limit was checked on.
    pub fn check_size(&self, format: Format, width: u32, height: u32) -> Result<(), CodecError> {
        if (width, height) == (self.width, self.height) {
            return Ok(());
        }
        let reason = format!("two sizes, {} x {} and {width} x {height}", self.width, self.height);
        Err(CodecError::damaged(format, reason))
    }
}

/// Makes `memory` at least `bytes` long and gives its first `bytes`. Only new memory is filled with zeros.
pub(crate) fn grow(memory: &mut Vec<u8>, bytes: u64) -> Result<&mut [u8], CodecError> {
    let refused = CodecError::OutOfMemory { bytes };
    let Ok(len) = usize::try_from(bytes) else { return Err(refused) };
    if memory.len() < len {
        if memory.try_reserve_exact(len - memory.len()).is_err() {
            return Err(refused);
        }
        memory.resize(len, 0);
    }
    Ok(&mut memory[..len])
}

/// Work memory that a thread keeps; what a larger picture needed is freed.
const MOST_SCRATCH: usize = 1 << 20;

/// Lends this thread's work memory, which keeps its size from picture to picture.
pub(crate) fn with_scratch<T>(work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    thread_local! {
        static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    SCRATCH.with(|cell| {
        // Taken, not borrowed: a nested call finds an empty vector instead of a panic.
        let mut scratch = cell.take();
        let result = work(&mut scratch);
        if scratch.capacity() <= MOST_SCRATCH {
            cell.set(scratch);
        }
        result
    })
}
