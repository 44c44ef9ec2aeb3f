//! The two passes of resizing: weighted sums of rows, and of the pixels of a row.
//!
//! Sums are exact in 32 bits, so their order does not matter, and vector code gives the bytes of the scalar definition.

use super::windows::Windows;
use crate::kernels::Simd;
use crate::view::View;

/// Bytes whose sums the scalar first pass keeps in registers.
const BLOCK: usize = 32;
/// Rows of a strip.
pub(super) const STRIP_ROWS: usize = 4;
/// Bytes behind the last window of a row that vector code may read: one group of four pixels of RGB and the rest of its vector.
const PADDING: usize = 4 * 3 + 16;

/// A few rows, with readable bytes behind each.
#[derive(Debug, Default)]
pub(super) struct Strip {
    bytes: Vec<u8>,
    stride: usize,
}

impl Strip {
    /// Row number `row`, for writing. All rows of a strip have one length.
    pub(super) fn row_mut(&mut self, row: usize, len: usize) -> &mut [u8] {
        if row == 0 {
            self.stride = len + PADDING;
            if self.bytes.len() < self.stride * STRIP_ROWS {
                self.bytes.resize(self.stride * STRIP_ROWS, 0);
            }
        }
        &mut self.bytes[row * self.stride..][..len]
    }

    /// All rows with their padding.
    pub(super) fn rows(&self) -> [&[u8]; STRIP_ROWS] {
        std::array::from_fn(|row| &self.bytes[row * self.stride..][..self.stride])
    }
}

/// Writes result number `number` of `windows`, a weighted sum of rows of `source`.
pub(super) fn blend_rows(source: View<'_>, windows: &Windows, number: usize, target: &mut [u8], simd: Simd) {
    let done = match () {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: C5.
        () if simd.has_avx2() => unsafe { super::x86::blend_rows(source, windows, number, target) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: C5.
        () if simd.has_neon() => unsafe { super::neon::blend_rows(source, windows, number, target) },
        () => 0,
    };
    let _ = simd;
    let (first, weights) = windows.exact(number);
    for (number, target) in target[done..].chunks_mut(BLOCK).enumerate() {
        let start = done + number * BLOCK;
        let mut sums = [half(windows.precision()); BLOCK];
        for (row, &weight) in source.rows_from(first as u32).zip(weights) {
            for (sum, &byte) in sums.iter_mut().zip(&row[start..start + target.len()]) {
                *sum += i32::from(byte) * i32::from(weight);
            }
        }
        for (byte, sum) in target.iter_mut().zip(sums) {
            *byte = clipped(sum, windows.precision());
        }
    }
}

/// Writes rows of results of `windows`, each a weighted sum of pixels of a row of the strip. `target` has at most as many rows.
pub(super) fn blend_columns<const CHANNELS: usize>(strip: &Strip, windows: &Windows, target: &mut [u8], simd: Simd) {
    let mut targets = target.as_chunks_mut::<CHANNELS>().0.chunks_exact_mut(windows.len());
    // Rows that the target does not have are empty.
    let targets: [_; STRIP_ROWS] = std::array::from_fn(|_| targets.next().unwrap_or_default());
    #[cfg(target_arch = "x86_64")]
    if simd.has_avx2() {
        // SAFETY: C5.
        return unsafe { super::x86::blend_columns(strip.rows(), windows, targets) };
    }
    #[cfg(target_arch = "aarch64")]
    if simd.has_neon() && CHANNELS == 3 {
        // SAFETY: C5.
        return unsafe { super::neon::blend_columns(strip.rows(), windows, targets) };
    }
    let _ = simd;
    for (row, target) in strip.rows().into_iter().zip(targets) {
        blend_pixels(row, windows, target);
    }
}

/// The definition of the second pass.
fn blend_pixels<const CHANNELS: usize>(row: &[u8], windows: &Windows, target: &mut [[u8; CHANNELS]]) {
    let pixels = row.as_chunks::<CHANNELS>().0;
    for (number, target) in target.iter_mut().enumerate() {
        let (first, weights) = windows.exact(number);
        let mut sums = [half(windows.precision()); CHANNELS];
        for (pixel, &weight) in pixels[first..].iter().zip(weights) {
            for (sum, &byte) in sums.iter_mut().zip(pixel) {
                *sum += i32::from(byte) * i32::from(weight);
            }
        }
        *target = sums.map(|sum| clipped(sum, windows.precision()));
    }
}

/// Half a unit of the result, so that cutting off the bits behind the binary point rounds.
pub(super) fn half(precision: u32) -> i32 {
    1 << (precision - 1)
}

fn clipped(sum: i32, precision: u32) -> u8 {
    (sum >> precision).clamp(0, 255) as u8
}
