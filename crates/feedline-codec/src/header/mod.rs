//! Reads facts about a picture from the first bytes of its file, without decoding.
//!
//! In: the bytes of a whole file. Out: a [`Header`]. Nothing here reads pixels or allocates memory.

mod pnm;
mod read;
mod tiff;
mod webp;

pub(crate) use pnm::Pnm;
pub use read::read_header;
pub(crate) use tiff::{Tiff, TiffColour, TiffCompression};
pub(crate) use webp::WebPFrame;

use crate::format::Format;
use crate::orientation::Orientation;
use crate::rect::Rect;
use crate::scale::Scale;

/// Facts known before decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Detected by the magic bytes.
    pub format: Format,
    /// Stored width, before the orientation.
    pub width: u32,
    /// Stored height, before the orientation.
    pub height: u32,
    /// From EXIF. [`Orientation::IDENTITY`] if there is none.
    pub orientation: Orientation,
    /// Whether the decoder holds the whole picture, also for a part of it: progressive JPEG, interlaced PNG, lossless WebP.
    pub needs_whole: bool,
}

impl Header {
    /// Width and height when decoded at a scale, before the orientation. Only JPEG can be decoded smaller.
    pub fn size_at(&self, scale: Scale) -> (u32, u32) {
        let divisor = if self.format == Format::Jpeg { scale.divisor() } else { 1 };
        (self.width.div_ceil(divisor), self.height.div_ceil(divisor))
    }

    /// The stored pixels that affect a rectangle of the picture decoded `divisor` times smaller, neighbours included.
    pub(crate) fn stored_rect(&self, rect: Rect, divisor: u32) -> Rect {
        if self.format != Format::Jpeg || divisor == 1 {
            return rect;
        }
        // One decoded pixel more on each side, because upsampled chroma depends on its neighbours.
        let (left, top) = (rect.left.saturating_sub(1) * divisor, rect.top.saturating_sub(1) * divisor);
        let (right, bottom) = ((rect.right() + 1) * divisor, (rect.bottom() + 1) * divisor);
        Rect { left, top, width: right.min(self.width) - left, height: bottom.min(self.height) - top }
    }

    /// Approximate peak memory of decoding a crop, in bytes: the pixels and the decoder's own memory.
    pub fn decode_bytes(&self, crop: Rect, channels: u8, exif: bool) -> u64 {
        let area = u64::from(self.width) * u64::from(self.height);
        let part = match self.format {
            // Whole MCUs, plus the neighbours that affect its edges.
            Format::Jpeg | Format::WebP => {
                area.min((u64::from(crop.width) + 64).saturating_mul(u64::from(crop.height) + 64))
            }
            Format::Png | Format::Tiff if !self.needs_whole => {
                u64::from(crop.width).saturating_mul(u64::from(crop.height))
            }
            _ => area,
        };
        let pixels = part.saturating_mul(channels.into());
        let extra = match self.format {
            // All coefficients, two bytes each, for up to three full components; and all pixels, if scans are missing.
            Format::Jpeg if self.needs_whole => area.saturating_mul(9),
            // Four bytes a pixel, and tables.
            Format::WebP if self.needs_whole => area.saturating_mul(6),
            Format::Png if self.needs_whole => area.saturating_mul(4),
            // Rows go straight to their place.
            Format::Jpeg | Format::Png | Format::Pnm | Format::WebP => 0,
            // Planes of colour are joined before they become grey, and a few rows are in memory.
            Format::Tiff => part.saturating_mul(3),
            Format::Bmp | Format::Gif => area.saturating_mul(5),
        };
        let oriented = if exif && self.orientation != Orientation::IDENTITY { pixels } else { 0 };
        pixels.saturating_add(extra).saturating_add(oriented)
    }
}
