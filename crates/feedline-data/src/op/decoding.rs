//! How encoded bytes become pixels, and how much of them: what the decoder and whoever loads for it agree on.

use feedline_codec::{DecodeOptions, Header, Mode, Rect, Scale};

use super::{Facts, Need};
use crate::batch::shrink;

/// Pillow's limit, at which it refuses a picture as a decompression bomb.
pub(crate) const DEFAULT_MOST_PIXELS: u64 = 178_956_970;

/// Whether a field holds labels, unless the user says otherwise: it is called `mask` or `..._mask`.
pub(crate) fn is_mask_field(field: &str) -> bool {
    field == "mask" || field.ends_with("_mask")
}

/// The parameters of a decoder for one field.
#[derive(Clone, Copy, Debug)]
pub struct Decoding {
    /// What the pixels shall mean.
    pub mode: Mode,
    /// Whether the EXIF orientation is applied.
    pub exif: bool,
    /// More pixels than this are refused.
    pub max_pixels: u64,
    /// Whether pixels may be approximate.
    pub fast: bool,
}

impl Decoding {
    /// What is known of a picture with this header.
    pub fn facts(&self, header: &Header) -> Facts {
        let Header { width, height, orientation, .. } = *header;
        let (width, height) = if self.exif { orientation.seen_size(width, height) } else { (width, height) };
        Facts { width, height }
    }

    /// The scale to decode at: approximate pixels are made no larger than twice what they are resized to.
    pub(crate) fn scale(&self, need: Option<Need>) -> Scale {
        let Some(Need { rect, resized: Some((width, height)) }) = need.filter(|_| self.fast) else {
            return Scale::Full;
        };
        let reaches = |divisor: u32| rect.width >= width * divisor && rect.height >= height * divisor;
        match () {
            () if reaches(8) => Scale::Eighth,
            () if reaches(4) => Scale::Quarter,
            () if reaches(2) => Scale::Half,
            () => Scale::Full,
        }
    }

    /// The part of the decoded picture that a need is about, at its scale.
    pub fn crop(&self, header: &Header, need: Need) -> Rect {
        let (width, height) = self.size_at(header, self.scale(Some(need)));
        shrink(need.rect, self.divisor(header, need), width, height)
    }

    /// Stored pixels of one decoded pixel, along a side.
    pub(crate) fn divisor(&self, header: &Header, need: Need) -> u32 {
        let scale = self.scale(Some(need));
        if header.size_at(scale) == (header.width, header.height) { 1 } else { scale.divisor() }
    }

    fn size_at(&self, header: &Header, scale: Scale) -> (u32, u32) {
        let (width, height) = header.size_at(scale);
        if self.exif { header.orientation.seen_size(width, height) } else { (width, height) }
    }

    /// The decoder's options.
    pub fn options<'a>(&self, need: Option<Need>, cancel: &'a dyn Fn() -> bool) -> DecodeOptions<'a> {
        let Self { mode, exif, max_pixels, fast } = *self;
        DecodeOptions { mode, exif, max_pixels, fast: fast.then(|| self.scale(need)), cancel }
    }
}
