//! One decoder per file. Each writes the picture that the header promised into a `Target`, or says why not.

pub(crate) mod colour;
pub(crate) mod jpeg;
pub(crate) mod jpeg_encode;
pub(crate) mod others;
pub(crate) mod png;
pub(crate) mod pnm;

pub use jpeg_encode::{JpegCoding, Subsampling};
