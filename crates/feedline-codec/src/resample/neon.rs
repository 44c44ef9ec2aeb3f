//! The NEON versions of blend.rs. Pixels of one channel use the scalar version of the second pass.
//!
//! All loads and stores are in the functions at the end (C6).

use std::arch::aarch64::{
    int16x4_t, int32x4_t, uint8x16_t, vcombine_s16, vcombine_u8, vcreate_u8, vdupq_n_s32, vget_low_s16, vget_low_u8,
    vld1q_u8, vmlal_high_n_s16, vmlal_n_s16, vmovl_high_u8, vmovl_u8, vqmovn_s32, vqmovun_s16, vreinterpretq_s16_u16,
    vshlq_s32, vst1q_u8,
};

use super::blend::{STRIP_ROWS, half};
use super::windows::Windows;
use crate::view::View;

/// Bytes in a vector.
const BYTES: usize = 16;

/// See `blend::blend_rows`. Returns how many bytes are done.
#[target_feature(enable = "neon")]
pub(super) fn blend_rows(source: View<'_>, windows: &Windows, number: usize, target: &mut [u8]) -> usize {
    let (first, weights) = windows.exact(number);
    // A negative count shifts to the right.
    let shift = vdupq_n_s32(-(windows.precision() as i32));
    let rows = &source.pixels[first * source.stride..];
    let blocks = target.as_chunks_mut::<BYTES>().0;
    for (number, block) in blocks.iter_mut().enumerate() {
        let mut sums = [vdupq_n_s32(half(windows.precision())); 4];
        for (row, &weight) in weights.iter().enumerate() {
            let bytes = load(rows, row * source.stride + number * BYTES);
            let low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes)));
            let high = vreinterpretq_s16_u16(vmovl_high_u8(bytes));
            sums[0] = vmlal_n_s16(sums[0], vget_low_s16(low), weight);
            sums[1] = vmlal_high_n_s16(sums[1], low, weight);
            sums[2] = vmlal_n_s16(sums[2], vget_low_s16(high), weight);
            sums[3] = vmlal_high_n_s16(sums[3], high, weight);
        }
        let [a, b, c, d] = sums.map(|sum| shifted(sum, shift));
        store(vcombine_u8(vqmovun_s16(vcombine_s16(a, b)), vqmovun_s16(vcombine_s16(c, d))), block);
    }
    blocks.len() * BYTES
}

/// See `blend::blend_columns`; for three channels.
#[target_feature(enable = "neon")]
pub(super) fn blend_columns<const CHANNELS: usize>(
    rows: [&[u8]; STRIP_ROWS],
    windows: &Windows,
    targets: [&mut [[u8; CHANNELS]]; STRIP_ROWS],
) {
    let shift = vdupq_n_s32(-(windows.precision() as i32));
    for (row, target) in rows.into_iter().zip(targets) {
        for (number, target) in target.iter_mut().enumerate() {
            let (first, weights) = windows.exact(number);
            let mut sum = vdupq_n_s32(half(windows.precision()));
            for (offset, &weight) in weights.iter().enumerate() {
                sum = vmlal_n_s16(sum, pixel(row, (first + offset) * CHANNELS), weight);
            }
            let narrow = shifted(sum, shift);
            let mut bytes = [0; BYTES];
            let clipped = vqmovun_s16(vcombine_s16(narrow, narrow));
            store(vcombine_u8(clipped, clipped), &mut bytes);
            target.copy_from_slice(&bytes[..CHANNELS]);
        }
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn shifted(sum: int32x4_t, shift: int32x4_t) -> int16x4_t {
    vqmovn_s32(vshlq_s32(sum, shift))
}

/// A pixel of RGB and the byte after it, as numbers.
#[inline]
#[target_feature(enable = "neon")]
fn pixel(row: &[u8], at: usize) -> int16x4_t {
    let bytes = u32::from_le_bytes(*row[at..].first_chunk().expect("rows are padded"));
    vget_low_s16(vreinterpretq_s16_u16(vmovl_u8(vcreate_u8(u64::from(bytes)))))
}

#[inline]
#[target_feature(enable = "neon")]
fn load(row: &[u8], at: usize) -> uint8x16_t {
    let bytes: &[u8; BYTES] = row[at..].first_chunk().expect("a block lies in its row");
    // SAFETY: C6.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn store(vector: uint8x16_t, target: &mut [u8; BYTES]) {
    // SAFETY: C6.
    unsafe { vst1q_u8(target.as_mut_ptr(), vector) }
}
