//! Changes brightness, contrast, saturation and hue of RGB pixels, as torchvision does on uint8 tensors.
//!
//! In: packed RGB and the steps. Out: the same pixels, changed in place. Each step is computed in float32 and truncated to a byte.
//! The functions on single values are the definition. The compiler vectorises the loops over them, once for the instructions that
//! every processor has, and once for AVX2 and FMA.
//!
//! Always true: SIMD and scalar give the same bytes. All operations are rounded as IEEE 754 says, and none is fused except by
//! `mul_add`, which rounds once on every processor.

#![expect(
    clippy::inline_always,
    reason = "a function is compiled for the instructions of its caller only where it is inlined"
)]

use super::simd::Simd;
use super::split::{join_row, split_row};

/// Pixels in a block. Its planes stay in the first cache between steps.
const BLOCK: usize = 1024;

/// One change of colours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ColourStep {
    /// Moves each channel away from a level, or towards it: `level * (1 - factor) + value * factor`. The level is 0 for brightness
    /// and the mean luminance for contrast.
    Blend {
        /// The value that stays as it is.
        level: f32,
        /// 1 changes nothing.
        factor: f64,
    },
    /// The same with the luminance of the pixel as level.
    Saturation {
        /// 1 changes nothing.
        factor: f64,
    },
    /// Turns the hue.
    Hue {
        /// A fraction of the circle.
        turn: f32,
    },
}

/// Applies steps to packed RGB, one after the other.
pub fn change_colours(rgb: &mut [u8], steps: &[ColourStep], simd: Simd) {
    if steps.is_empty() {
        return;
    }
    let mut planes = [[0; BLOCK]; 3];
    for block in rgb.chunks_mut(BLOCK * 3) {
        let pixels = block.len() / 3;
        let [r, g, b] = planes.each_mut().map(|plane| &mut plane[..pixels]);
        split_row(block, [&mut *r, &mut *g, &mut *b], simd);
        change(steps, [&mut *r, &mut *g, &mut *b], simd);
        join_row([&*r, &*g, &*b], block, simd);
    }
}

/// The mean luminance of packed RGB. Summed in integers, so that the order of summation does not matter.
pub fn mean_luma(rgb: &[u8], simd: Simd) -> f32 {
    let mut planes = [[0; BLOCK]; 3];
    let mut total = 0;
    for block in rgb.chunks(BLOCK * 3) {
        let [r, g, b] = planes.each_mut().map(|plane| &mut plane[..block.len() / 3]);
        split_row(block, [&mut *r, &mut *g, &mut *b], simd);
        total += u64::from(luma_sum([r, g, b], simd));
    }
    (total as f64 / (rgb.len() / 3).max(1) as f64) as f32
}

fn change(steps: &[ColourStep], planes: [&mut [u8]; 3], simd: Simd) {
    #[cfg(target_arch = "x86_64")]
    if simd.has_avx2() {
        // SAFETY: C5.
        return unsafe { change_avx2(steps, planes) };
    }
    let _ = simd;
    change_planes(steps, planes);
}

fn luma_sum(planes: [&[u8]; 3], simd: Simd) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if simd.has_avx2() {
        // SAFETY: C5.
        return unsafe { luma_sum_avx2(planes) };
    }
    let _ = simd;
    luma_sum_planes(planes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn change_avx2(steps: &[ColourStep], planes: [&mut [u8]; 3]) {
    change_planes(steps, planes);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn luma_sum_avx2(planes: [&[u8]; 3]) -> u32 {
    luma_sum_planes(planes)
}

#[inline(always)]
fn change_planes(steps: &[ColourStep], [r, g, b]: [&mut [u8]; 3]) {
    for step in steps {
        match *step {
            ColourStep::Blend { level, factor } => {
                for plane in [&mut *r, &mut *g, &mut *b] {
                    for value in plane {
                        *value = blend(*value, level, factor);
                    }
                }
            }
            ColourStep::Saturation { factor } => {
                for ((r, g), b) in r.iter_mut().zip(&mut *g).zip(&mut *b) {
                    let grey = luma([*r, *g, *b]);
                    [*r, *g, *b] = [*r, *g, *b].map(|value| blend(value, grey, factor));
                }
            }
            ColourStep::Hue { turn } => {
                for ((r, g), b) in r.iter_mut().zip(&mut *g).zip(&mut *b) {
                    [*r, *g, *b] = turn_hue([*r, *g, *b], turn);
                }
            }
        }
    }
}

#[inline(always)]
fn luma_sum_planes([r, g, b]: [&[u8]; 3]) -> u32 {
    r.iter().zip(g).zip(b).map(|((&r, &g), &b)| truncated(luma([r, g, b]))).sum()
}

#[inline(always)]
fn blend(value: u8, level: f32, factor: f64) -> u8 {
    let blended = level.mul_add((1.0 - factor) as f32, factor as f32 * f32::from(value));
    truncated(blended.clamp(0.0, 255.0)) as u8
}

/// Luminance, truncated to an integer.
#[inline(always)]
fn luma([red, green, blue]: [u8; 3]) -> f32 {
    let sum = f32::from(green).mul_add(0.587, 0.2989 * f32::from(red));
    f32::from(blue).mul_add(0.114, sum).floor()
}

/// The integer part of a number from 0 to 255.
#[inline(always)]
fn truncated(value: f32) -> u32 {
    // From 2^23 on, floats are whole numbers and the mantissa counts them. A conversion by `as` also handles numbers out of range,
    // which compilers do not vectorise.
    (value.floor() + 8_388_608.0).to_bits() & 0xff
}

/// `value / divisor` for a constant divisor, given its reciprocal. A product, whose error is then corrected, has the bits of a
/// division (Markstein), and takes a fraction of its time.
#[inline(always)]
fn divided(value: f32, divisor: f32, reciprocal: f32) -> f32 {
    let near = value * reciprocal;
    let remainder = (-near).mul_add(divisor, value);
    remainder.mul_add(reciprocal, near)
}

// No branches: both sides of each `if` are computed, and one of them is selected.
#[inline(always)]
#[expect(clippy::float_cmp, reason = "the greatest of three is one of them, and a sector is a whole number")]
fn turn_hue(pixel: [u8; 3], turn: f32) -> [u8; 3] {
    let [r, g, b] = pixel.map(|value| divided(f32::from(value), 255.0, 1.0 / 255.0));
    // RGB to HSV, add the turn to the hue, and back.
    let high = greater(greater(r, g), b);
    let range = high - lesser(lesser(r, g), b);
    let saturation = range / high;
    let (is_red, is_green) = (high == r, high == g);
    // The hue in sixths of the circle: from the middle of the sector of the greatest channel, by the distances of the others.
    let (middle, ahead, behind) = if is_red {
        (0.0, b, g)
    } else if is_green {
        (2.0, r, b)
    } else {
        (4.0, g, r)
    };
    let sixths = middle + (high - ahead) / range - (high - behind) / range;
    // The hue is a fraction of the circle. Adding 1 keeps it positive, then its integer part is dropped.
    let hue = divided(sixths, 6.0, 1.0 / 6.0) + 1.0 + turn;
    let sector = (hue - hue.floor()) * 6.0;
    let index = sector.floor();
    let fraction = sector - index;
    let part = |share: f32| (high * (1.0 - saturation * share)).clamp(0.0, 1.0);
    let (p, q, t) = (part(1.0), part(fraction), part(1.0 - fraction));
    // The fraction may be rounded up to 1, which is the first sector again.
    let index = if index == 6.0 { 0.0 } else { index };
    let channel = |is_high: bool, is_q: bool, is_t: bool| {
        let value = if is_high {
            high
        } else if is_q {
            q
        } else if is_t {
            t
        } else {
            p
        };
        // torchvision's conversion from float to uint8.
        truncated(value * (256.0 - 1e-3)) as u8
    };
    let turned = [
        channel(index == 0.0 || index == 5.0, index == 1.0, index == 4.0),
        channel(index == 1.0 || index == 2.0, index == 3.0, index == 0.0),
        channel(index == 3.0 || index == 4.0, index == 5.0, index == 2.0),
    ];
    // A grey pixel has no hue.
    if range == 0.0 { pixel } else { turned }
}

#[inline(always)]
fn greater(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

#[inline(always)]
fn lesser(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neutral_factors_change_nothing_and_a_full_turn_of_hue_returns() {
        for pixel in [[0, 0, 0], [255, 255, 255], [10, 200, 90], [255, 0, 128], [1, 2, 3]] {
            assert_eq!(pixel.map(|value| blend(value, 99.0, 1.0)), pixel);
            for (value, turned) in pixel.into_iter().zip(turn_hue(pixel, 1.0)) {
                assert!(value.abs_diff(turned) <= 1, "{pixel:?} became {:?}", turn_hue(pixel, 1.0));
            }
        }
    }

    #[test]
    fn a_corrected_product_has_the_bits_of_a_division() {
        for value in 0..=255_u8 {
            let value = f32::from(value);
            assert_eq!(divided(value, 255.0, 1.0 / 255.0).to_bits(), (value / 255.0).to_bits());
        }
        for step in -100_000..=600_000 {
            let value = step as f32 / 100_000.0;
            assert_eq!(divided(value, 6.0, 1.0 / 6.0).to_bits(), (value / 6.0).to_bits(), "{value}");
        }
    }
}
