//! The header of `NIfTI` files, version 1 and 2, in either byte order.
//!
//! In: the first bytes of a file. Out: a [`VolumeHeader`]. Its axes are in the order of the file's dimensions, as in `nibabel`: the
//! first dimension, which is the fastest in the file, is the first axis.

use super::VolumeHeader;
use super::header::Fastest;
use crate::dtype::Dtype;

/// Bytes of the longer header, including the four bytes after it.
pub(super) const HEADER_BYTES: usize = 544;
const VERSION_1: u32 = 348;
const VERSION_2: u32 = 540;

/// Parses a header. `head` is the start of the file.
pub(super) fn parse(head: &[u8]) -> Result<VolumeHeader, String> {
    let size: [u8; 4] = *head.first_chunk().ok_or("it has fewer than 4 bytes")?;
    let parsed = match (u32::from_le_bytes(size), u32::from_be_bytes(size)) {
        // The first field is the size of the header. Its value also shows the version and the byte order.
        (VERSION_1, _) => Fields { head, is_big_endian: false }.version_1(),
        (_, VERSION_1) => Fields { head, is_big_endian: true }.version_1(),
        (VERSION_2, _) => Fields { head, is_big_endian: false }.version_2(),
        (_, VERSION_2) => Fields { head, is_big_endian: true }.version_2(),
        _ => return Err("it begins like neither NIfTI, gzip nor .npy".to_owned()),
    };
    let fields = parsed.ok_or_else(|| format!("its header is cut short at byte {}", head.len()))?;
    fields.header()
}

/// The fields that both versions have.
struct NiftiFields {
    is_big_endian: bool,
    is_single_file: bool,
    version: u32,
    datatype: i64,
    dimensions: [i64; 8],
    spacings: [f64; 8],
    data_offset: f64,
    slope: f64,
    intercept: f64,
}

impl NiftiFields {
    fn header(self) -> Result<VolumeHeader, String> {
        if !self.is_single_file {
            return Err("its header lacks the mark of a NIfTI file that contains its own data (\"n+1\")".to_owned());
        }
        // `dim[0]` is the number of dimensions, `dim[1]` to `dim[7]` are the sides.
        let [count, sides @ ..] = self.dimensions;
        let axes = usize::try_from(count).ok().filter(|axes| (3..=7).contains(axes));
        let axes = axes.ok_or_else(|| format!("it has {count} dimensions; a volume has 3, or 4 with channels"))?;
        let sides = &sides[..axes];
        if sides.iter().skip(4).any(|&side| side != 1) {
            return Err(format!("its dimensions are {sides:?}; a volume has 3, or 4 with channels"));
        }
        let side = |axis: usize| {
            let side = sides.get(axis).copied().unwrap_or(1);
            usize::try_from(side).map_err(|_| format!("dimension {} is {side}", axis + 1))
        };
        // Four bytes after the header announce extensions, so data starts at byte 352 or 544 at the earliest. Below the upper limit
        // the conversion from float64 is exact.
        let data_start = u64::from(self.version) + 4;
        if !(self.data_offset >= data_start as f64 && self.data_offset < 1e15) {
            return Err(format!(
                "its header puts the data at byte {}, but the data can only follow the {data_start} bytes of the header",
                self.data_offset
            ));
        }
        // NIfTI: a slope of 0 means that values are not scaled. Like nibabel, this also holds for a slope that is not finite.
        let has_scale = self.slope.is_finite() && self.slope != 0.0;
        if has_scale && !self.intercept.is_finite() {
            return Err(format!("its values are scaled by {} and {}", self.slope, self.intercept));
        }
        let header = VolumeHeader {
            dtype: dtype(self.datatype)?,
            is_big_endian: self.is_big_endian,
            channels: side(3)?,
            sides: [side(0)?, side(1)?, side(2)?],
            fastest: Fastest::First,
            data_offset: self.data_offset as u64,
            scale: (has_scale && (self.slope, self.intercept) != (1.0, 0.0)).then_some((self.slope, self.intercept)),
            spacing: Some([self.spacings[1], self.spacings[2], self.spacings[3]]),
        };
        header.check()
    }
}

fn dtype(code: i64) -> Result<Dtype, String> {
    Ok(match code {
        // Codes as in nifti1.h.
        2 => Dtype::U8,
        4 => Dtype::I16,
        8 => Dtype::I32,
        16 => Dtype::F32,
        64 => Dtype::F64,
        256 => Dtype::I8,
        512 => Dtype::U16,
        768 => Dtype::U32,
        1024 => Dtype::I64,
        1280 => Dtype::U64,
        _ => {
            return Err(format!(
                "elements of NIfTI type {code} are not supported; save them as integers or floats of at most 64 bits"
            ));
        }
    })
}

/// Reads numbers at given places of a header.
struct Fields<'a> {
    head: &'a [u8],
    is_big_endian: bool,
}

impl Fields<'_> {
    fn version_1(&self) -> Option<NiftiFields> {
        let mut dimensions = [0; 8];
        let mut spacings = [0.0; 8];
        for axis in 0..8 {
            // Byte offsets as in nifti1.h: dim 40, datatype 70, pixdim 76, vox_offset 108, scl_slope 112, scl_inter 116, magic
            // 344.
            dimensions[axis] = i64::from(i16::from_le_bytes(self.at(40 + 2 * axis)?));
            spacings[axis] = f64::from(f32::from_le_bytes(self.at(76 + 4 * axis)?));
        }
        Some(NiftiFields {
            is_big_endian: self.is_big_endian,
            is_single_file: self.head.get(344..348)? == b"n+1\0",
            version: VERSION_1,
            datatype: i64::from(i16::from_le_bytes(self.at(70)?)),
            dimensions,
            spacings,
            data_offset: f64::from(f32::from_le_bytes(self.at(108)?)),
            slope: f64::from(f32::from_le_bytes(self.at(112)?)),
            intercept: f64::from(f32::from_le_bytes(self.at(116)?)),
        })
    }

    fn version_2(&self) -> Option<NiftiFields> {
        let mut dimensions = [0; 8];
        let mut spacings = [0.0; 8];
        for axis in 0..8 {
            // Byte offsets as in nifti2.h: magic 4, datatype 12, dim 16, pixdim 104, vox_offset 168, scl_slope 176, scl_inter
            // 184.
            dimensions[axis] = i64::from_le_bytes(self.at(16 + 8 * axis)?);
            spacings[axis] = f64::from_le_bytes(self.at(104 + 8 * axis)?);
        }
        Some(NiftiFields {
            is_big_endian: self.is_big_endian,
            is_single_file: self.head.get(4..8)? == b"n+2\0",
            version: VERSION_2,
            datatype: i64::from(i16::from_le_bytes(self.at(12)?)),
            dimensions,
            spacings,
            data_offset: i64::from_le_bytes(self.at(168)?) as f64,
            slope: f64::from_le_bytes(self.at(176)?),
            intercept: f64::from_le_bytes(self.at(184)?),
        })
    }

    /// The bytes of a number, least significant first.
    fn at<const N: usize>(&self, place: usize) -> Option<[u8; N]> {
        let mut bytes: [u8; N] = *self.head.get(place..)?.first_chunk()?;
        if self.is_big_endian {
            bytes.reverse();
        }
        Some(bytes)
    }
}
