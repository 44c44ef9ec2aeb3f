//! The seek index of a picture file: where each part of the picture lies in it.
//!
//! In: an untouched baseline JPEG, walked once. Out: a small index, with which the coefficients of just the MCUs around a crop
//! are read; libjpeg makes of them the very pixels of a full decode. Of files of plain pixels (PPM, PGM) only the crop's
//! rows are needed. What a crop needs can also be taken out, as a [`Trimmed`] picture, to be decoded where the file is not.
//!
//! Files and indexes may both be hostile: what is wrong with a file makes it [`NotSeekable`], what is wrong with an index
//! is an error of the cut, and coefficients may be any numbers. All of this is safe Rust.

mod bits;
mod coefficients;
mod cut;
mod exact;
mod frame;
mod huffman;
mod index;
mod jpeg;
mod kept;
mod optimal;
mod packed;
mod packed_frame;
mod recode;
mod scan;
mod trim;
mod trimmed;
mod walk;

pub use index::SeekIndex;
pub(crate) use index::{JpegPiece, Piece};
pub(crate) use scan::Mcus;
pub use trimmed::Trimmed;
pub(crate) use trimmed::TrimmedPiece;
pub use walk::NotSeekable;
