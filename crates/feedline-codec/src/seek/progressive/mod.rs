//! The coefficients of a crop of a progressive JPEG.
//!
//! A progressive file has several scans. Each contains some coefficients of all blocks, or one more bit of them. So the coefficients
//! of a picture are complete only after the last scan. Of blocks outside the crop only one bit per coefficient is kept: whether it is
//! zero. The scans that refine coefficients need that to be read.
//!
//! In: a whole file and a crop. Out: the coefficients of the MCUs around the crop, for libjpeg's transforms. Only complete files that
//! follow the standard are read. Of all others nothing is returned, and libjpeg decides what counts as damage. Memory is bounded by
//! the size of the picture, and time by that and the number of scans.

mod band;
mod blocks;
mod dc;
mod first;
mod picture;
mod refine;
mod script;
mod zeros;

pub(crate) use picture::ProgressiveCrop;
