//! The AVX2 versions of blend.rs.
//!
//! `madd` multiplies pairs of neighbouring 16-bit numbers and adds the two products, so bytes of two rows or of two pixels are put
//! side by side. All loads and stores are in the functions at the end (C6).

use std::arch::x86_64::{
    __m128i, __m256i, _mm_cvtsi32_si128, _mm_cvtsi128_si32, _mm_extract_epi32, _mm_loadu_si128, _mm_set_epi32,
    _mm256_add_epi32, _mm256_broadcastsi128_si256, _mm256_castsi256_si128, _mm256_cvtepu8_epi16,
    _mm256_extracti128_si256, _mm256_hadd_epi32, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_packs_epi32,
    _mm256_packus_epi16, _mm256_permute2x128_si256, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_sra_epi32, _mm256_storeu_si256, _mm256_unpackhi_epi8, _mm256_unpacklo_epi8,
};

use super::blend::{STRIP_ROWS, half};
use super::windows::Windows;
use crate::view::View;

/// Bytes in a vector.
const BYTES: usize = 32;

/// Puts the channels of two pixels of RGB side by side as 16-bit numbers: of the first two pixels in the low half, of the next two
/// in the high half. A set high bit gives zero.
const PAIRS: [u8; BYTES] = {
    let mut mask = [0x80; BYTES];
    let mut half = 0;
    while half < 2 {
        let mut channel = 0;
        while channel < 3 {
            mask[half * 16 + channel * 4] = (half * 6 + channel) as u8;
            mask[half * 16 + channel * 4 + 2] = (half * 6 + channel + 3) as u8;
            channel += 1;
        }
        half += 1;
    }
    mask
};

/// Repeats the first two of four weights in the low half, and the next two in the high half.
const WEIGHTS: [u8; BYTES] = {
    let mut mask = [0; BYTES];
    let mut place = 0;
    while place < BYTES {
        mask[place] = (place / 16 * 4 + place % 4) as u8;
        place += 1;
    }
    mask
};

/// See `blend::blend_rows`. Returns how many bytes are done.
#[target_feature(enable = "avx2,f16c")]
pub(super) fn blend_rows(source: View<'_>, windows: &Windows, number: usize, target: &mut [u8]) -> usize {
    let done = blend_blocks::<2>(source, windows, number, 0, target);
    done + blend_blocks::<1>(source, windows, number, done, &mut target[done..])
}

/// Blends blocks of `VECTORS` vectors, from byte `first` of the rows on. Returns how many bytes are done.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn blend_blocks<const VECTORS: usize>(
    source: View<'_>,
    windows: &Windows,
    number: usize,
    first: usize,
    target: &mut [u8],
) -> usize {
    let (start, count, weights) = windows.in_pairs(number);
    let shift = _mm_cvtsi32_si128(windows.precision() as i32);
    let rows = &source.pixels[start * source.stride..];
    let last = (count - 1) * source.stride;
    for (number, block) in target.chunks_exact_mut(VECTORS * BYTES).enumerate() {
        let at = first + number * VECTORS * BYTES;
        let mut sums = [[_mm256_set1_epi32(half(windows.precision())); 4]; VECTORS];
        let mut row = 0;
        for &weights in weights {
            // Without a second row its weight is 0.
            let (upper, lower) = (&rows[row + at..], &rows[(row + source.stride).min(last) + at..]);
            let (upper, lower) = (&upper[..VECTORS * BYTES], &lower[..VECTORS * BYTES]);
            for (vector, sums) in sums.iter_mut().enumerate() {
                add_two(sums, load(upper, vector * BYTES), load(lower, vector * BYTES), weights);
            }
            row += 2 * source.stride;
        }
        for (sums, block) in sums.into_iter().zip(block.as_chunks_mut().0) {
            let [a, b, c, d] = sums.map(|sum| _mm256_sra_epi32(sum, shift));
            store(_mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d)), block);
        }
    }
    target.len() - target.len() % (VECTORS * BYTES)
}

/// Adds the weighted bytes of two rows.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn add_two(sums: &mut [__m256i; 4], upper: __m256i, lower: __m256i, weights: [i16; 2]) {
    let both = i32::from(weights[0] as u16) | i32::from(weights[1]) << 16;
    let (weights, zero) = (_mm256_set1_epi32(both), _mm256_setzero_si256());
    let (low, high) = (_mm256_unpacklo_epi8(upper, lower), _mm256_unpackhi_epi8(upper, lower));
    let pairs = [
        _mm256_unpacklo_epi8(low, zero),
        _mm256_unpackhi_epi8(low, zero),
        _mm256_unpacklo_epi8(high, zero),
        _mm256_unpackhi_epi8(high, zero),
    ];
    for (sum, pairs) in sums.iter_mut().zip(pairs) {
        *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, weights));
    }
}

/// See `blend::blend_columns`.
#[target_feature(enable = "avx2,f16c")]
pub(super) fn blend_columns<const CHANNELS: usize>(
    rows: [&[u8]; STRIP_ROWS],
    windows: &Windows,
    mut targets: [&mut [[u8; CHANNELS]]; STRIP_ROWS],
) {
    // All have the same length. Saying so here leaves one check for four rows.
    let len = rows[0].len();
    let rows = rows.map(|row| &row[..len]);
    let shift = _mm_cvtsi32_si128(windows.precision() as i32);
    let half = _mm256_set1_epi32(half(windows.precision()));
    for (number, (start, weights)) in windows.in_fours().enumerate() {
        let at = start * CHANNELS;
        let sums = if CHANNELS == 3 { sums_of_rgb(rows, at, weights) } else { sums_of_grey(rows, at, weights) };
        let [a, b] = sums.map(|sum| _mm256_sra_epi32(_mm256_add_epi32(sum, half), shift));
        // Rows 0 and 2 are in the low half, 1 and 3 in the high half.
        let bytes = _mm256_packs_epi32(a, b);
        let bytes = _mm256_packus_epi16(bytes, bytes);
        let (even, odd) = (_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
        let results = [
            _mm_cvtsi128_si32(even),
            _mm_cvtsi128_si32(odd),
            _mm_extract_epi32::<1>(even),
            _mm_extract_epi32::<1>(odd),
        ];
        for (target, result) in targets.iter_mut().zip(results) {
            if let Some(pixel) = target.get_mut(number) {
                pixel.copy_from_slice(&result.to_le_bytes()[..CHANNELS]);
            }
        }
    }
}

/// The sums of one result in four rows: rows 0 and 1 in the halves of the first vector, 2 and 3 in those of the second.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn sums_of_rgb(rows: [&[u8]; STRIP_ROWS], at: usize, weights: &[[i16; 4]]) -> [__m256i; 2] {
    let (pairs, repeat) = (load(&PAIRS, 0), load(&WEIGHTS, 0));
    let mut sums = [_mm256_setzero_si256(); STRIP_ROWS];
    for (four, weights) in weights.iter().enumerate() {
        let weights = _mm256_shuffle_epi8(_mm256_set1_epi64x(as_i64(*weights)), repeat);
        for (sum, row) in sums.iter_mut().zip(rows) {
            let pixels = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_16(row, at + four * 12)), pairs);
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pixels, weights));
        }
    }
    [halves_added(sums[0], sums[1]), halves_added(sums[2], sums[3])]
}

/// As [`sums_of_rgb`], with the sum of each row in the first number of its half.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn sums_of_grey(rows: [&[u8]; STRIP_ROWS], at: usize, weights: &[[i16; 4]]) -> [__m256i; 2] {
    let mut sums = _mm256_setzero_si256();
    for (four, weights) in weights.iter().enumerate() {
        let [a, b, c, d] = rows.map(|row| four_bytes(row, at + four * 4));
        let pixels = _mm256_cvtepu8_epi16(_mm_set_epi32(d, c, b, a));
        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(pixels, _mm256_set1_epi64x(as_i64(*weights))));
    }
    // Two numbers of each row become one: those of rows 0 and 1 in the low half, of 2 and 3 in the high half.
    let sums = _mm256_hadd_epi32(sums, sums);
    let (low, high) = (_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
    [spread(low), spread(high)]
}

/// The first number in the low half, the second one in the high half.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn spread(two: __m128i) -> __m256i {
    let both = _mm256_broadcastsi128_si256(two);
    let second = std::arch::x86_64::_mm256_srli_si256::<4>(both);
    std::arch::x86_64::_mm256_blend_epi32::<0b1111_0000>(both, second)
}

/// The two halves of each vector added: those of `a` in the low half, those of `b` in the high half.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn halves_added(a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi32(_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b))
}

fn as_i64(weights: [i16; 4]) -> i64 {
    let [a, b, c, d] = weights.map(|weight| u64::from(weight as u16));
    (a | b << 16 | c << 32 | d << 48) as i64
}

fn four_bytes(row: &[u8], at: usize) -> i32 {
    i32::from_le_bytes(*row[at..].first_chunk().expect("rows are padded"))
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn load(row: &[u8], at: usize) -> __m256i {
    let bytes: &[u8; BYTES] = row[at..].first_chunk().expect("a block lies in its row");
    // SAFETY: C6.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn load_16(row: &[u8], at: usize) -> __m128i {
    let bytes: &[u8; 16] = row[at..].first_chunk().expect("rows are padded");
    // SAFETY: C6.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn store(vector: __m256i, target: &mut [u8; BYTES]) {
    // SAFETY: C6.
    unsafe { _mm256_storeu_si256(target.as_mut_ptr().cast(), vector) }
}
