//! The NEON versions of normalize.rs: planes and interleaved numbers of f32, planes of bytes.
//!
//! In: one row. Out: the part that whole vectors cover, and its length; the caller does the rest. The operations and their order
//! are those of the scalar definition, so the bytes are the same. All loads and stores are in the functions at the end (C6). The
//! narrow types use the scalar version.

use std::arch::aarch64::{
    float32x4_t, uint8x16_t, uint8x16x3_t, vaddq_f32, vcvtq_f32_u32, vdupq_n_f32, vget_low_u8, vget_low_u16, vld1q_f32,
    vld1q_u8, vld3q_u8, vmovl_high_u8, vmovl_high_u16, vmovl_u8, vmovl_u16, vmulq_f32, vreinterpretq_u8_f32, vst1q_u8,
    vst3q_u8,
};

use crate::kernels::normalize::{Affine, Number, NumberKind};

/// Bytes in a vector, and pixels in a step of the plane kernels.
const BYTES: usize = 16;
/// Bytes of the numbers that the bytes of a vector become.
const NUMBERS_BYTES: usize = BYTES * size_of::<f32>();

/// See `normalize::split_numbers`.
#[target_feature(enable = "neon")]
pub(super) fn split_numbers<N: Number>(row: &[u8], affine: Option<&Affine>, planes: [&mut [u8]; 3]) -> usize {
    if N::KIND != NumberKind::F32 {
        return 0;
    }
    let steps = row.as_chunks::<{ BYTES * 3 }>().0;
    let [r, g, b] = planes.map(|plane| plane.as_chunks_mut::<NUMBERS_BYTES>().0);
    let arithmetic = [0, 1, 2].map(|channel| Arithmetic::of(affine, [channel; BYTES]));
    for (bytes, ((r, g), b)) in steps.iter().zip(r.iter_mut().zip(g).zip(b)) {
        let uint8x16x3_t(red, green, blue) = load_split(bytes);
        arithmetic[0].write(red, r);
        arithmetic[1].write(green, g);
        arithmetic[2].write(blue, b);
    }
    steps.len() * BYTES
}

/// See `normalize::convert_bytes`.
#[target_feature(enable = "neon")]
pub(super) fn convert_bytes<N: Number>(
    row: &[u8],
    affine: Option<&Affine>,
    channels: usize,
    target: &mut [u8],
) -> usize {
    // The channels repeat after 48 bytes, whether there is one or three.
    const STEP: usize = BYTES * 3;
    if N::KIND != NumberKind::F32 {
        return 0;
    }
    let steps = row.as_chunks::<STEP>().0;
    let places = target.as_chunks_mut::<{ STEP * size_of::<f32>() }>().0;
    let arithmetic = [0, 1, 2].map(|part| {
        let mut order = [0; BYTES];
        order.iter_mut().enumerate().for_each(|(i, channel)| *channel = (part * BYTES + i) % channels);
        Arithmetic::of(affine, order)
    });
    for (bytes, places) in steps.iter().zip(places) {
        let parts = bytes.as_chunks::<BYTES>().0.iter().zip(places.as_chunks_mut::<NUMBERS_BYTES>().0);
        for ((bytes, place), arithmetic) in parts.zip(&arithmetic) {
            arithmetic.write(load_16(bytes), place);
        }
    }
    steps.len() * STEP
}

/// See `split::split_row`.
#[target_feature(enable = "neon")]
pub(super) fn split_bytes(row: &[u8], planes: [&mut [u8]; 3]) -> usize {
    let steps = row.as_chunks::<{ BYTES * 3 }>().0;
    let [r, g, b] = planes.map(|plane| plane.as_chunks_mut::<BYTES>().0);
    for (bytes, ((r, g), b)) in steps.iter().zip(r.iter_mut().zip(g).zip(b)) {
        let uint8x16x3_t(red, green, blue) = load_split(bytes);
        store_16(red, r);
        store_16(green, g);
        store_16(blue, b);
    }
    steps.len() * BYTES
}

/// See `split::join_row`.
#[target_feature(enable = "neon")]
pub(super) fn join_bytes(planes: [&[u8]; 3], row: &mut [u8]) -> usize {
    let [r, g, b] = planes.map(|plane| plane.as_chunks::<BYTES>().0);
    let steps = row.as_chunks_mut::<{ BYTES * 3 }>().0;
    for (bytes, ((r, g), b)) in steps.iter_mut().zip(r.iter().zip(g).zip(b)) {
        store_joined(uint8x16x3_t(load_16(r), load_16(g), load_16(b)), bytes);
    }
    r.len() * BYTES
}

/// `normalize::value` for sixteen bytes at once.
struct Arithmetic {
    affine: Option<[(float32x4_t, float32x4_t); 4]>,
}

impl Arithmetic {
    /// For sixteen bytes of the given channels.
    #[inline]
    #[target_feature(enable = "neon")]
    fn of(affine: Option<&Affine>, channels: [usize; BYTES]) -> Self {
        let Some(affine) = affine else { return Self { affine: None } };
        let [first, second, third, fourth] = channels.as_chunks::<4>().0 else { return Self { affine: None } };
        let four = |channels: &[usize; 4]| {
            let pick = |values: [f32; 3]| channels.map(|channel| values[channel]);
            (load_f32(&pick(affine.scale)), load_f32(&pick(affine.bias)))
        };
        Self { affine: Some([four(first), four(second), four(third), four(fourth)]) }
    }

    /// The numbers of the bytes.
    #[inline]
    #[target_feature(enable = "neon")]
    fn write(&self, bytes: uint8x16_t, target: &mut [u8; NUMBERS_BYTES]) {
        let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
        let wide =
            [vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low), vmovl_u16(vget_low_u16(high)), vmovl_high_u16(high)];
        for (part, (wide, place)) in wide.into_iter().zip(target.as_chunks_mut::<16>().0).enumerate() {
            // A product and a sum, never fused: the same roundings as in the scalar definition.
            let mut value = vmulq_f32(vcvtq_f32_u32(wide), vdupq_n_f32(1.0 / 255.0));
            if let Some(affine) = &self.affine {
                let (scale, bias) = affine[part];
                value = vaddq_f32(vmulq_f32(value, scale), bias);
            }
            store_16(vreinterpretq_u8_f32(value), place);
        }
    }
}

/// Sixteen pixels of RGB as sixteen bytes of each channel.
#[inline]
#[target_feature(enable = "neon")]
fn load_split(bytes: &[u8; BYTES * 3]) -> uint8x16x3_t {
    // SAFETY: C6.
    unsafe { vld3q_u8(bytes.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn load_16(bytes: &[u8; 16]) -> uint8x16_t {
    // SAFETY: C6.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn load_f32(values: &[f32; 4]) -> float32x4_t {
    // SAFETY: C6.
    unsafe { vld1q_f32(values.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn store_16(vector: uint8x16_t, target: &mut [u8; 16]) {
    // SAFETY: C6.
    unsafe { vst1q_u8(target.as_mut_ptr(), vector) }
}

/// Sixteen bytes of each channel as sixteen pixels of RGB.
#[inline]
#[target_feature(enable = "neon")]
fn store_joined(channels: uint8x16x3_t, target: &mut [u8; BYTES * 3]) {
    // SAFETY: C6.
    unsafe { vst3q_u8(target.as_mut_ptr(), channels) }
}
