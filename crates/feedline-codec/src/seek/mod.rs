//! The seek index of a picture file: where each part of the picture lies in it.
//!
//! In: an untouched baseline JPEG, walked once. Out: a small index, with which a crop is cut out in the compressed domain: the bits
//! of the MCUs around it are copied into an ordinary small JPEG, whose decode gives the very pixels of a full decode. A
//! cut costs a tenth of the decoding that it saves. Of files of plain pixels (PPM, PGM) only the crop's rows are needed.
//!
//! Files and indexes may both be hostile: what is wrong with a file makes it [`NotSeekable`], what is wrong with an index
//! is an error of the cut, and a cut is decoded by libjpeg like any other file. All of this is safe Rust.

mod bits;
mod cut;
mod frame;
mod huffman;
mod index;
mod jpeg;
mod packed;
mod walk;

pub(crate) use index::Piece;
pub use index::{BadIndex, SeekIndex};
pub use walk::NotSeekable;
