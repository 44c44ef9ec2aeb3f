//! Converts pixels of 16 bits a channel to numbers.
//!
//! In: rows in native byte order. Out: native-endian numbers, as planes (CHW) or interleaved (HWC). The arithmetic is that of
//! normalize.rs, with 65535 in place of 255. There is no SIMD version.

use half::{bf16, f16};

use super::normalize::{Affine, Number};

/// The numbers that pixels of 16 bits become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeepNumbers {
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// Brain floats.
    Bf16,
}

/// Writes rows of `channels` channels as numbers, in planes or interleaved. `target` has their size.
pub fn numbers_of_16_bits<'a>(
    rows: impl ExactSizeIterator<Item = &'a [u8]>,
    channels: usize,
    affine: Option<&Affine>,
    (numbers, is_planar): (DeepNumbers, bool),
    target: &mut [u8],
) {
    match numbers {
        DeepNumbers::F32 => convert::<f32>(rows, channels, affine, is_planar, target),
        DeepNumbers::F16 => convert::<f16>(rows, channels, affine, is_planar, target),
        DeepNumbers::Bf16 => convert::<bf16>(rows, channels, affine, is_planar, target),
    }
}

fn convert<'a, N: Number>(
    rows: impl ExactSizeIterator<Item = &'a [u8]>,
    channels: usize,
    affine: Option<&Affine>,
    is_planar: bool,
    target: &mut [u8],
) {
    let plane = target.len() / N::BYTES / channels;
    let mut first = 0;
    for row in rows {
        let row = row.as_chunks::<2>().0;
        let width = row.len() / channels;
        for (at, bytes) in row.iter().enumerate() {
            let (pixel, channel) = (at / channels, at % channels);
            let place = if is_planar { channel * plane + first + pixel } else { (first + pixel) * channels + channel };
            let mut value = f32::from(u16::from_ne_bytes(*bytes)) * (1.0 / 65535.0);
            if let Some(affine) = affine {
                value = value * affine.scale[channel] + affine.bias[channel];
            }
            N::write(value, &mut target[place * N::BYTES..][..N::BYTES]);
        }
        first += width;
    }
    assert!(first == plane, "{first} pixels were given, the target has room for {plane}");
}
