//! One decoder per file. Each writes a picture of the size in the header into a `Target`, or returns an error.

pub(crate) mod colour;
mod deep_pixels;
pub(crate) mod jpeg;
pub(crate) mod jpeg_encode;
pub(crate) mod others;
pub(crate) mod png;
mod png_filter;
mod png_plain;
pub(crate) mod pnm;
pub(crate) mod tiff;
mod tiff_encode;
mod tiff_rows;
pub(crate) mod webp;
pub(crate) mod webp_encode;

pub use jpeg_encode::{JpegCoding, Subsampling};
pub use tiff_encode::{TiffCoding, TiffPacking, encode_tiff};
pub use webp_encode::WebPCoding;
