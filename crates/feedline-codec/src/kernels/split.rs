//! Splits RGB pixels into planes of bytes, and joins planes to pixels.
//!
//! In: a row. Out: the same bytes in the other order. Whole vectors go through SIMD, the rest one by one.

#[cfg(target_arch = "aarch64")]
use super::neon;
use super::simd::Simd;
#[cfg(target_arch = "x86_64")]
use super::x86;

/// Writes the channels of a row to three planes of its width.
pub(super) fn split_row(row: &[u8], planes: [&mut [u8]; 3], simd: Simd) {
    let [r, g, b] = planes;
    let done = split_vectors(simd, row, [&mut *r, &mut *g, &mut *b]);
    let (pixels, _) = row[done * 3..].as_chunks::<3>();
    let places = r[done..].iter_mut().zip(&mut g[done..]).zip(&mut b[done..]);
    for (pixel, ((r, g), b)) in pixels.iter().zip(places) {
        [*r, *g, *b] = *pixel;
    }
}

/// Writes three planes to a row of their width.
pub(super) fn join_row(planes: [&[u8]; 3], row: &mut [u8], simd: Simd) {
    let done = join_vectors(simd, planes, row);
    let [r, g, b] = planes.map(|plane| &plane[done..]);
    let (pixels, _) = row[done * 3..].as_chunks_mut::<3>();
    for (pixel, ((&r, &g), &b)) in pixels.iter_mut().zip(r.iter().zip(g).zip(b)) {
        *pixel = [r, g, b];
    }
}

/// Returns how many pixels it split.
fn split_vectors(simd: Simd, row: &[u8], planes: [&mut [u8]; 3]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if simd.has_avx2() {
        // SAFETY: C5.
        return unsafe { x86::split_bytes(row, planes) };
    }
    #[cfg(target_arch = "aarch64")]
    if simd.has_neon() {
        // SAFETY: C5.
        return unsafe { neon::split_bytes(row, planes) };
    }
    let (_, _, _) = (simd, row, planes);
    0
}

/// Returns how many pixels it joined.
fn join_vectors(simd: Simd, planes: [&[u8]; 3], row: &mut [u8]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if simd.has_avx2() {
        // SAFETY: C5.
        return unsafe { x86::join_bytes(planes, row) };
    }
    #[cfg(target_arch = "aarch64")]
    if simd.has_neon() {
        // SAFETY: C5.
        return unsafe { neon::join_bytes(planes, row) };
    }
    let (_, _, _) = (simd, planes, row);
    0
}
