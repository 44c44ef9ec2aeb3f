//! Volumes: arrays of depth x height x width, as files of medical imaging hold them.
//!
//! In: an open object. Out: what its header says, and the elements of a region of it, as ops want them: channels first, the
//! last axis fastest, images as float32 and labels as uint8. Of a file that is not compressed only the bytes around the
//! region are read. Also what balanced crops look for: the [`Foreground`] of a label.
//!
//! Every byte of a file is taken as hostile: a header that lies is an error with its numbers, never a panic or memory
//! beyond the budget.

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
