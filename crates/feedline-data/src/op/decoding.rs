//! The parameters of decoding, shared by the decoder and by loaders that read for it.

use feedline_codec::{DecodeOptions, Header, Mode, Rect, Scale};

use super::{Facts, Need};
use crate::batch::shrink;

/// Pillow's limit. Pillow rejects larger pictures as decompression bombs.
pub(crate) const DEFAULT_MOST_PIXELS: u64 = 178_956_970;

/// Whether a field holds labels by default: it is called `mask` or `..._mask`.
pub(crate) fn is_mask_field(field: &str) -> bool {
    field == "mask" || field.ends_with("_mask")
}

/// The parameters of decoding one field.
#[derive(Clone, Copy, Debug)]
pub struct Decoding {
    /// The pixel format of the result.
    pub mode: Mode,
    /// Whether the EXIF orientation is applied.
    pub exif: bool,
    /// Upper limit of pixels.
    pub max_pixels: u64,
    /// Whether pixels may be approximate.
    pub fast: bool,
}

impl Decoding {
    /// The facts about a picture with this header.
    pub fn facts(&self, header: &Header) -> Facts {
        let Header { width, height, orientation, .. } = *header;
        let (width, height) = if self.exif { orientation.seen_size(width, height) } else { (width, height) };
        Facts { width, height }
    }

    /// The scale to decode at. Approximate pixels are decoded at most twice as large as the size they are resized to.
    pub(crate) fn scale(&self, need: Option<Need>) -> Scale {
        let Some(Need { rect, resized: Some((width, height)) }) = need.filter(|_| self.fast) else {
            return Scale::Full;
        };
        // The part must stay at least as large as the size it is resized to, so that it is only ever made smaller.
        let reaches = |divisor: u32| rect.width >= width * divisor && rect.height >= height * divisor;
        match () {
            () if reaches(8) => Scale::Eighth,
            () if reaches(4) => Scale::Quarter,
            () if reaches(2) => Scale::Half,
            () => Scale::Full,
        }
    }

    /// The needed part of the decoded picture, at its scale.
    pub fn crop(&self, header: &Header, need: Need) -> Rect {
        let (width, height) = self.size_at(header, self.scale(Some(need)));
        shrink(need.rect, self.divisor(header, need), width, height)
    }

    /// Stored pixels per decoded pixel, along a side.
    pub(crate) fn divisor(&self, header: &Header, need: Need) -> u32 {
        let scale = self.scale(Some(need));
        // Only JPEG decodes at a scale. Other formats return full size whatever the scale.
        if header.size_at(scale) == (header.width, header.height) { 1 } else { scale.divisor() }
    }

    fn size_at(&self, header: &Header, scale: Scale) -> (u32, u32) {
        let (width, height) = header.size_at(scale);
        if self.exif { header.orientation.seen_size(width, height) } else { (width, height) }
    }

    /// The options for the decoder.
    pub fn options<'a>(&self, need: Option<Need>, cancel: &'a dyn Fn() -> bool) -> DecodeOptions<'a> {
        let Self { mode, exif, max_pixels, fast } = *self;
        DecodeOptions { mode, exif, max_pixels, fast: fast.then(|| self.scale(need)), cancel }
    }
}
