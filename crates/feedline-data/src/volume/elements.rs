//! Converts elements of a file to the types that ops work on: float32 for images, uint8 for labels.

use half::{bf16, f16};

use super::VolumeHeader;
use crate::dtype::Dtype;

/// A value that is not a label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NotALabel(pub f64);

/// Whether the elements of a file need no conversion.
pub(super) fn is_plain(header: &VolumeHeader, to: Dtype) -> bool {
    header.dtype == to && header.scale.is_none() && !header.is_big_endian && cfg!(target_endian = "little")
}

/// Converts elements of a file to the type `to`, which must be float32 or uint8.
pub(super) fn convert(header: &VolumeHeader, to: Dtype, raw: &[u8], out: &mut [u8]) -> Result<(), NotALabel> {
    macro_rules! each {
        ($($dtype:ident, $type:ty, $number:expr;)*) => {
            match header.dtype {
                $(Dtype::$dtype => {
                    const BYTES: usize = size_of::<$type>();
                    let number: fn($type) -> _ = $number;
                    match header.is_big_endian {
                        true => numbers::<BYTES, _>(header, to, raw, out, |bytes| number(<$type>::from_be_bytes(bytes))),
                        false => numbers::<BYTES, _>(header, to, raw, out, |bytes| number(<$type>::from_le_bytes(bytes))),
                    }
                })*
                Dtype::Bool => numbers::<1, _>(header, to, raw, out, |[byte]| f32::from(u8::from(byte != 0))),
            }
        };
    }
    if is_plain(header, to) {
        out.copy_from_slice(raw);
        return Ok(());
    }
    each! {
        U8, u8, f32::from;
        I8, i8, f32::from;
        U16, u16, f32::from;
        I16, i16, f32::from;
        U32, u32, f64::from;
        I32, i32, f64::from;
        U64, u64, |number| number as f64;
        I64, i64, |number| number as f64;
        F16, f16, f16::to_f32;
        BF16, bf16, bf16::to_f32;
        F32, f32, |number| number;
        F64, f64, |number| number;
    }
}

/// An element as float32 if that represents its type exactly, otherwise as float64.
trait ElementNumber: Copy + Into<f64> {
    fn single(self) -> f32;
}

impl ElementNumber for f32 {
    fn single(self) -> f32 {
        self
    }
}

impl ElementNumber for f64 {
    fn single(self) -> f32 {
        self as f32
    }
}

#[inline]
fn numbers<const N: usize, T: ElementNumber>(
    header: &VolumeHeader,
    to: Dtype,
    raw: &[u8],
    out: &mut [u8],
    number: impl Fn([u8; N]) -> T,
) -> Result<(), NotALabel> {
    let raw = raw.as_chunks::<N>().0;
    // The value of a NIfTI element is `slope * stored + intercept`, computed in float64.
    let scaled = |number: T| header.scale.map_or(number.into(), |(slope, intercept)| number.into() * slope + intercept);
    match (to, header.scale) {
        (Dtype::F32, None) => {
            for (bytes, out) in raw.iter().zip(out.as_chunks_mut::<4>().0) {
                *out = number(*bytes).single().to_ne_bytes();
            }
        }
        (Dtype::F32, Some(_)) => {
            for (bytes, out) in raw.iter().zip(out.as_chunks_mut::<4>().0) {
                *out = (scaled(number(*bytes)) as f32).to_ne_bytes();
            }
        }
        _ => {
            let mut are_labels = true;
            for (bytes, out) in raw.iter().zip(out.iter_mut()) {
                let value = scaled(number(*bytes));
                // `as` saturates, and the check is a separate flag: the loop has no branch and can be vectorised.
                *out = value as u8;
                are_labels &= is_label(value);
            }
            if !are_labels {
                // Converts once more, only after a failure, to name the first wrong value.
                let first = raw.iter().map(|bytes| scaled(number(*bytes))).find(|&value| !is_label(value));
                return Err(NotALabel(first.unwrap_or(f64::NAN)));
            }
        }
    }
    Ok(())
}

/// Whether a value is an integer from 0 to 255.
#[inline]
#[expect(clippy::float_cmp, reason = "whole numbers are exact")]
fn is_label(value: f64) -> bool {
    f64::from(value as u8) == value
}

/// Transposes elements of `N` bytes: `planes` of `rows` x `columns` become columns x rows x planes. The last side of `out` has the
/// length `width`. These planes are written from place `first` of it on.
pub(super) fn transpose<const N: usize>(
    source: &[u8],
    (planes, rows, columns): (usize, usize, usize),
    out: &mut [u8],
    (first, width): (usize, usize),
) {
    /// Number of columns to write in turn, so that their cache lines stay loaded.
    const TILE: usize = 16;
    let (source, out) = (source.as_chunks::<N>().0, out.as_chunks_mut::<N>().0);
    for tile in (0..columns).step_by(TILE) {
        for row in 0..rows {
            for column in tile..columns.min(tile + TILE) {
                let target = &mut out[(column * rows + row) * width + first..][..planes];
                for (plane, target) in target.iter_mut().enumerate() {
                    *target = source[(plane * rows + row) * columns + column];
                }
            }
        }
    }
}
