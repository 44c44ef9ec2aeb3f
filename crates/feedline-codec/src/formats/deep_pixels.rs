//! Writes samples of 16 bits as pixels.

use crate::options::Mode;

/// Writes pixels of `samples` samples, of which the first one or three are kept. `value` returns a sample by its number.
pub(super) fn write(samples: usize, is_rgb: bool, mode: Mode, value: impl Fn(usize) -> u16, target: &mut [u8]) {
    for (number, pixel) in target.chunks_exact_mut(usize::from(mode.pixel_bytes())).enumerate() {
        let at = number * samples;
        let rgb = if is_rgb { [value(at), value(at + 1), value(at + 2)] } else { [value(at); 3] };
        if mode == Mode::Rgb16 {
            pixel.as_chunks_mut().0.iter_mut().zip(rgb).for_each(|(bytes, value)| *bytes = value.to_ne_bytes());
        } else {
            pixel.copy_from_slice(&luma(rgb).to_ne_bytes());
        }
    }
}

/// The luma of 8 bits, with 16. Equal channels stay.
pub(super) fn luma([r, g, b]: [u16; 3]) -> u16 {
    ((u64::from(r) * 19595 + u64::from(g) * 38470 + u64::from(b) * 7471 + 0x8000) >> 16) as u16
}
