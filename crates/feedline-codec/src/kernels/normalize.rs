//! Converts pixels to the numbers that a model takes.
//!
//! In: a [`View`] of bytes. Out: native-endian numbers, as planes (CHW) or interleaved (HWC). For each byte x:
//! v = x * (1/255), then, if an [`Affine`] is given, v * scale + bias, as two rounded operations and never a fused one;
//! the narrow types are that f32 rounded to nearest, ties to even.
//!
//! Always true: SIMD and scalar give the same bytes; a target of another length than needed panics.

use half::{bf16, f16};

#[cfg(target_arch = "aarch64")]
use crate::kernels::neon;
use crate::kernels::simd::Simd;
use crate::kernels::split::split_row;
#[cfg(target_arch = "x86_64")]
use crate::kernels::x86;
use crate::view::View;

/// A scale and a bias for each channel: v * scale + bias. For mean m and deviation s: scale 1/s, bias -m/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    /// Factors, by channel.
    pub scale: [f32; 3],
    /// Summands, by channel.
    pub bias: [f32; 3],
}

/// Writes planes of f32.
pub fn planes_f32(source: View<'_>, affine: Option<&Affine>, simd: Simd, target: &mut [u8]) {
    planes::<f32>(source, affine, simd, target);
}

/// Writes planes of f16.
pub fn planes_f16(source: View<'_>, affine: Option<&Affine>, simd: Simd, target: &mut [u8]) {
    planes::<f16>(source, affine, simd, target);
}

/// Writes planes of bf16.
pub fn planes_bf16(source: View<'_>, affine: Option<&Affine>, simd: Simd, target: &mut [u8]) {
    planes::<bf16>(source, affine, simd, target);
}

/// Writes rows of f32, channels interleaved.
pub fn interleaved_f32(source: View<'_>, affine: Option<&Affine>, simd: Simd, target: &mut [u8]) {
    interleaved::<f32>(source, affine, simd, target);
}

/// Writes rows of f16, channels interleaved.
pub fn interleaved_f16(source: View<'_>, affine: Option<&Affine>, simd: Simd, target: &mut [u8]) {
    interleaved::<f16>(source, affine, simd, target);
}

/// Writes rows of bf16, channels interleaved.
pub fn interleaved_bf16(source: View<'_>, affine: Option<&Affine>, simd: Simd, target: &mut [u8]) {
    interleaved::<bf16>(source, affine, simd, target);
}

/// Writes planes of the bytes themselves.
pub fn planes_u8(source: View<'_>, simd: Simd, target: &mut [u8]) {
    let source = check(source, 1, target);
    if source.is_empty() {
        return;
    }
    let row_bytes = source.row_bytes();
    if source.channels == 1 {
        for (row, target) in source.rows().zip(target.chunks_exact_mut(row_bytes)) {
            target.copy_from_slice(row);
        }
        return;
    }
    for (row, planes) in source.rows().zip(plane_rows(source, 1, target)) {
        split_row(row, planes, simd);
    }
}

/// A number that pixels become. `BYTES` is its size, `KIND` its name in the SIMD kernels.
pub(super) trait Number: Copy {
    const BYTES: usize;
    const KIND: NumberKind;
    fn write(value: f32, target: &mut [u8]);
}

/// The kinds of numbers, for the SIMD kernels.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberKind {
    F32,
    F16,
    Bf16,
}

impl Number for f32 {
    const BYTES: usize = 4;
    const KIND: NumberKind = NumberKind::F32;
    fn write(value: f32, target: &mut [u8]) {
        target.copy_from_slice(&value.to_ne_bytes());
    }
}

impl Number for f16 {
    const BYTES: usize = 2;
    const KIND: NumberKind = NumberKind::F16;
    fn write(value: f32, target: &mut [u8]) {
        target.copy_from_slice(&f16::from_f32(value).to_ne_bytes());
    }
}

impl Number for bf16 {
    const BYTES: usize = 2;
    const KIND: NumberKind = NumberKind::Bf16;
    fn write(value: f32, target: &mut [u8]) {
        target.copy_from_slice(&bf16::from_f32(value).to_ne_bytes());
    }
}

/// The arithmetic, in one place. Without an affine the last two steps are left out rather than done with 1 and 0.
pub(super) fn value(byte: u8, affine: Option<&Affine>, channel: usize) -> f32 {
    let value = f32::from(byte) * (1.0 / 255.0);
    match affine {
        Some(affine) => value * affine.scale[channel] + affine.bias[channel],
        None => value,
    }
}

fn planes<N: Number>(source: View<'_>, affine: Option<&Affine>, simd: Simd, target: &mut [u8]) {
    if source.channels == 1 {
        return interleaved::<N>(source, affine, simd, target);
    }
    let source = check(source, N::BYTES, target);
    if source.is_empty() {
        return;
    }
    for (row, mut planes) in source.rows().zip(plane_rows(source, N::BYTES, target)) {
        let done = split_numbers::<N>(simd, row, affine, planes.each_mut().map(|plane| &mut **plane));
        let (pixels, _) = row[done * 3..].as_chunks::<3>();
        for (channel, plane) in planes.into_iter().enumerate() {
            let plane = &mut plane[done * N::BYTES..];
            for (pixel, place) in pixels.iter().zip(plane.chunks_exact_mut(N::BYTES)) {
                N::write(value(pixel[channel], affine, channel), place);
            }
        }
    }
}

fn interleaved<N: Number>(source: View<'_>, affine: Option<&Affine>, simd: Simd, target: &mut [u8]) {
    let source = check(source, N::BYTES, target);
    if source.is_empty() {
        return;
    }
    let channels = usize::from(source.channels);
    for (row, target) in source.rows().zip(target.chunks_exact_mut(source.row_bytes() * N::BYTES)) {
        let done = convert_bytes::<N>(simd, row, affine, channels, target);
        let target = &mut target[done * N::BYTES..];
        // `done` is a multiple of the channels.
        for (i, (&byte, place)) in row[done..].iter().zip(target.chunks_exact_mut(N::BYTES)).enumerate() {
            N::write(value(byte, affine, i % channels), place);
        }
    }
}

/// The SIMD part of a row for planes; returns how many pixels it did.
fn split_numbers<N: Number>(simd: Simd, row: &[u8], affine: Option<&Affine>, planes: [&mut [u8]; 3]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if simd.has_avx2() {
        // SAFETY: C5.
        return unsafe { x86::split_numbers::<N>(row, affine, planes) };
    }
    #[cfg(target_arch = "aarch64")]
    if simd.has_neon() {
        // SAFETY: C5.
        return unsafe { neon::split_numbers::<N>(row, affine, planes) };
    }
    let (_, _, _, _) = (simd, row, affine, planes);
    0
}

/// The SIMD part of a row for interleaved numbers; returns how many bytes it did.
fn convert_bytes<N: Number>(
    simd: Simd,
    row: &[u8],
    affine: Option<&Affine>,
    channels: usize,
    target: &mut [u8],
) -> usize {
    #[cfg(target_arch = "x86_64")]
    if simd.has_avx2() {
        // SAFETY: C5.
        return unsafe { x86::convert_bytes::<N>(row, affine, channels, target) };
    }
    #[cfg(target_arch = "aarch64")]
    if simd.has_neon() {
        // SAFETY: C5.
        return unsafe { neon::convert_bytes::<N>(row, affine, channels, target) };
    }
    let (_, _, _, _, _) = (simd, row, affine, channels, target);
    0
}

/// Compares lengths; a view without gaps becomes one long row.
fn check<'a>(source: View<'a>, number_bytes: usize, target: &[u8]) -> View<'a> {
    source.check();
    let needed = source.row_bytes() * source.height as usize * number_bytes;
    assert!(
        target.len() == needed,
        "{} x {} x {} numbers of {number_bytes} bytes need {needed} bytes, the target has {}",
        source.width,
        source.height,
        source.channels,
        target.len()
    );
    match source.width.checked_mul(source.height) {
        // One long row has only one end that does not fill a vector.
        Some(pixels) if source.is_packed() && pixels > 0 => {
            View { width: pixels, height: 1, stride: pixels as usize * usize::from(source.channels), ..source }
        }
        _ => source,
    }
}

/// The three planes of `target`, row by row.
fn plane_rows<'t>(
    source: View<'_>,
    number_bytes: usize,
    target: &'t mut [u8],
) -> impl Iterator<Item = [&'t mut [u8]; 3]> + use<'t> {
    let row_bytes = source.width as usize * number_bytes;
    let (r, rest) = target.split_at_mut(row_bytes * source.height as usize);
    let (g, b) = rest.split_at_mut(row_bytes * source.height as usize);
    let rows = r.chunks_exact_mut(row_bytes).zip(g.chunks_exact_mut(row_bytes));
    rows.zip(b.chunks_exact_mut(row_bytes)).map(|((r, g), b)| [r, g, b])
}
