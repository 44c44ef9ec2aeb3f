//! The header of a volume in any format, and the errors of volumes.

use std::io;

use super::nifti;
use crate::dtype::{Dtype, array_bytes};
use crate::memory::NoMemory;
use crate::store::StoreError;
use crate::volume::npy;

/// Bytes at the start of a file that contain any header except that of `.npy`.
pub(super) const HEAD_BYTES: usize = nifti::HEADER_BYTES;

/// The contents of a header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VolumeHeader {
    /// Element type in the file.
    pub dtype: Dtype,
    /// Whether the most significant byte of an element comes first.
    pub is_big_endian: bool,
    /// Number of channels.
    pub channels: usize,
    /// Depth, height and width: the axes of the file in the order of `NumPy` and `nibabel`.
    pub sides: [usize; 3],
    /// The fastest axis in the file.
    pub fastest: Fastest,
    /// The byte at which the elements start, after decompression.
    pub data_offset: u64,
    /// Slope and intercept that convert stored values to real ones.
    pub scale: Option<(f64, f64)>,
    /// Millimetres between elements, if the format stores it.
    pub spacing: Option<[f64; 3]>,
}

/// The axis along which neighbouring elements are next to each other in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fastest {
    /// The last one, as in `.npy` in C order.
    Last,
    /// The first one, as in `NIfTI` and in `.npy` in Fortran order.
    First,
}

impl VolumeHeader {
    /// Bytes of all elements. `None` if that exceeds the address space.
    pub(crate) fn data_bytes(&self) -> Option<usize> {
        let [depth, height, width] = self.sides;
        array_bytes(self.dtype, &[self.channels, depth, height, width])
    }

    /// Channels, depth, height, width.
    pub(crate) fn shape(&self) -> [usize; 4] {
        let [depth, height, width] = self.sides;
        [self.channels, depth, height, width]
    }

    /// Reads the text of a `.npy` header.
    pub(super) fn of_npy(text: &str, data_offset: u64) -> Result<Self, String> {
        let header = npy::parse(text, data_offset)?;
        let fastest = if header.is_fortran { Fastest::First } else { Fastest::Last };
        let (channels, sides) = match header.shape[..] {
            [depth, height, width] => (1, [depth, height, width]),
            [channels, depth, height, width] => (channels, [depth, height, width]),
            _ => return Err(format!("it has {} axes; a volume has 3, or 4 with channels first", header.shape.len())),
        };
        // In Fortran order the channels would be interleaved element by element, which `VolumeFile` cannot read.
        if fastest == Fastest::First && channels > 1 {
            return Err("it is in Fortran order with several channels; save it with numpy.ascontiguousarray".to_owned());
        }
        let this = Self {
            dtype: header.dtype,
            is_big_endian: false,
            channels,
            sides,
            fastest,
            data_offset,
            scale: None,
            spacing: None,
        };
        this.check()
    }

    /// Rejects a volume without elements, or with too many.
    pub(super) fn check(self) -> Result<Self, String> {
        // So later sums of offset and length cannot overflow.
        let fits = self.data_bytes().is_some_and(|bytes| self.data_offset.checked_add(bytes as u64).is_some());
        if self.shape().contains(&0) || !fits {
            return Err(format!("its header claims the impossible shape {:?}", self.shape()));
        }
        Ok(self)
    }
}

/// What is wrong with a volume.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum VolumeError {
    #[error("{path:?} is not a volume that can be read: {problem}")]
    Header { path: String, problem: String },
    #[error(
        "{path:?} is too short: its header claims {dtype} {shape:?}, {expected} bytes, but there are at most {has}"
    )]
    Short { path: String, dtype: &'static str, shape: [usize; 4], expected: u64, has: u64 },
    #[error("{path:?} ends too early: it decompresses to {unpacked} bytes, but its header claims at least {expected}")]
    CutShort { path: String, unpacked: u64, expected: u64 },
    #[error("{path:?} is cut short: its {bytes} compressed bytes end in the middle of the data, after byte {unpacked}")]
    GzipCutShort { path: String, bytes: u64, unpacked: u64 },
    #[error("the compressed data of {path:?} is damaged after decompressed byte {unpacked}")]
    Damaged { path: String, unpacked: u64, source: io::Error },
    #[error("label {path:?} contains {value}; labels are whole numbers from 0 to 255")]
    NotALabel { path: String, value: f64 },
    #[error(
        "{first:?} is {first_shape:?}, but {second:?} is {second_shape:?}; all volumes of a sample must have the same shape"
    )]
    ShapesDiffer { first: String, first_shape: [usize; 3], second: String, second_shape: [usize; 3] },
    #[error("{path:?} has {has} channels, but the first readable volume of its field has {wants}")]
    Channels { path: String, has: usize, wants: usize },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Memory(#[from] NoMemory),
}

impl VolumeError {
    /// The memory error, if that was the cause.
    pub fn no_memory(&self) -> Option<NoMemory> {
        match self {
            Self::Memory(memory) | Self::Store(StoreError::Memory(memory)) => Some(*memory),
            _ => None,
        }
    }
}
