//! Volumes: arrays of depth x height x width, as in medical imaging.
//!
//! In: an open object. Out: its header, and the elements of a region in the form that ops use: channels first, the last axis
//! fastest, images as float32 and labels as uint8. Of an uncompressed file only the bytes around the region are read. This module
//! also finds the [`Foreground`] of a label for balanced crops.
//!
//! Every byte of a file may be hostile: a header that lies is an error with its numbers, never a panic or memory beyond the budget.

mod bytes;
mod elements;
mod file;
mod foreground;
mod header;
mod nifti;
pub(crate) mod npy;
mod region;
mod resample;

pub use file::VolumeFile;
pub use foreground::Foreground;
pub use header::{VolumeError, VolumeHeader};
pub use region::Region;
pub(crate) use resample::{Resampling, place_bytes};
