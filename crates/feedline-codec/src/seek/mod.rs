//! The seek index of a picture file: where each part of the picture is stored.
//!
//! In: an unchanged baseline JPEG, walked once, alone or while a crop of it is decoded. Out: a small index. With it only the
//! coefficients of the MCUs around a crop are read, and libjpeg turns them into exactly the pixels of a full decode. Of raw pixels
//! (PPM, PGM) only the rows of the crop are read. The data that a crop needs can also be extracted, as a [`Trimmed`] picture, and
//! decoded elsewhere.
//!
//! A progressive JPEG has no index. Its scans are read completely, and give the coefficients of a crop.
//!
//! Files and indexes may both be hostile. An error in a file makes it [`NotSeekable`]. An error in an index makes the crop fail,
//! and the caller reads the whole file instead. Coefficients may be any numbers. All of this is safe Rust.

mod bits;
mod coefficients;
mod cut;
mod exact;
mod first_pass;
mod frame;
mod huffman;
mod index;
mod jpeg;
mod mcus;
mod optimal;
mod packed;
mod packed_frame;
mod progressive;
mod recode;
mod scan;
mod segment;
mod table_cache;
mod trim;
mod trimmed;
mod walk;

pub(crate) use first_pass::FirstPass;
pub use index::SeekIndex;
pub(crate) use index::{JpegPiece, Piece};
pub(crate) use mcus::McuSource;
pub(crate) use progressive::ProgressiveCrop;
pub use trimmed::Trimmed;
pub(crate) use trimmed::TrimmedPiece;
pub use walk::NotSeekable;
