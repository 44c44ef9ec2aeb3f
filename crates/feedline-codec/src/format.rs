//! File formats, detected by their magic bytes.

use std::fmt;

/// A file format that can be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Baseline, progressive and arithmetic, 8 bits.
    Jpeg,
    /// With 1 to 16 bits, palette or not, interlaced or not.
    Png,
    /// Lossy and lossless; of an animation the first frame.
    WebP,
    /// Grey, RGB and palettes with 1 to 16 bits, in strips and tiles; of a file with several pictures the first.
    Tiff,
    /// Windows bitmap.
    Bmp,
    /// The first frame.
    Gif,
    /// Binary PPM and PGM of 8 bits: pixels as they are.
    Pnm,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::WebP => "WebP",
            Self::Tiff => "TIFF",
            Self::Bmp => "BMP",
            Self::Gif => "GIF",
            Self::Pnm => "PNM",
        })
    }
}
