//! Mirrors packed pixels in place.
//!
//! In and out: the same bytes. Flipping twice is the identity. Bytes are moved, not computed, so the result is the same with and
//! without SIMD.

#[cfg(target_arch = "x86_64")]
use crate::kernels::{simd::Simd, x86};

/// Mirrors left and right.
pub fn flip_horizontal(pixels: &mut [u8], width: u32, height: u32, channels: u8) {
    let Some(row_bytes) = check(pixels, width, height, channels) else { return };
    for row in pixels.chunks_exact_mut(row_bytes) {
        match channels {
            1 => row.reverse(),
            3 => reverse_rgb(row),
            2 => row.as_chunks_mut::<2>().0.reverse(),
            6 => row.as_chunks_mut::<6>().0.reverse(),
            _ => {
                row.reverse();
                row.chunks_exact_mut(usize::from(channels)).for_each(<[u8]>::reverse);
            }
        }
    }
}

/// Swaps blocks from both ends, then reverses the middle pixel by pixel.
fn reverse_rgb(row: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if Simd::detect().has_avx2() {
        // SAFETY: C5.
        let done = unsafe { x86::swap_ends(row) };
        let end = row.len() - done;
        return row[done..end].as_chunks_mut::<3>().0.reverse();
    }
    row.as_chunks_mut::<3>().0.reverse();
}

/// Mirrors up and down.
pub fn flip_vertical(pixels: &mut [u8], width: u32, height: u32, channels: u8) {
    let Some(row_bytes) = check(pixels, width, height, channels) else { return };
    // An odd middle row stays in `lower` and is not touched: `rchunks` starts at the last row.
    let (upper, lower) = pixels.split_at_mut(height as usize / 2 * row_bytes);
    let lower = lower.rchunks_exact_mut(row_bytes);
    upper.chunks_exact_mut(row_bytes).zip(lower).for_each(|(upper, lower)| upper.swap_with_slice(lower));
}

/// Bytes of a row. `None` if there are no pixels.
fn check(pixels: &[u8], width: u32, height: u32, channels: u8) -> Option<usize> {
    let row_bytes = width as usize * usize::from(channels);
    assert!(
        pixels.len() == row_bytes * height as usize,
        "{width} x {height} x {channels} pixels are not {} bytes",
        pixels.len()
    );
    (!pixels.is_empty()).then_some(row_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [(u32, u32); 9] = [(1, 1), (2, 1), (1, 2), (3, 3), (5, 4), (16, 2), (37, 5), (224, 3), (0, 7)];

    #[test]
    fn flips_move_each_pixel_to_its_mirror_place() {
        for (width, height) in SIZES {
            for channels in [1, 2, 3, 4] {
                let len = width * height * u32::from(channels);
                let pixels: Vec<u8> = (0..len).map(|i| (i * 7 + i / 256) as u8).collect();
                let at = |x: u32, y: u32, c: u32| pixels[((y * width + x) * u32::from(channels) + c) as usize];
                let expect = |place: &dyn Fn(u32, u32) -> (u32, u32)| -> Vec<u8> {
                    (0..len)
                        .map(|i| {
                            let (pixel, c) = (i / u32::from(channels), i % u32::from(channels));
                            let (x, y) = place(pixel % width, pixel / width);
                            at(x, y, c)
                        })
                        .collect()
                };
                let mut flipped = pixels.clone();
                flip_horizontal(&mut flipped, width, height, channels);
                assert_eq!(flipped, expect(&|x, y| (width - 1 - x, y)), "{width} x {height} x {channels}");
                let mut flipped = pixels.clone();
                flip_vertical(&mut flipped, width, height, channels);
                assert_eq!(flipped, expect(&|x, y| (x, height - 1 - y)), "{width} x {height} x {channels}");
            }
        }
    }

    #[test]
    fn flipping_twice_is_the_identity() {
        let pixels: Vec<u8> = (0..37 * 5 * 3).map(|i| (i % 251) as u8).collect();
        let mut twice = pixels.clone();
        for _ in 0..2 {
            flip_horizontal(&mut twice, 37, 5, 3);
            flip_vertical(&mut twice, 37, 5, 3);
        }
        assert_eq!(twice, pixels);
    }
}
