//! The AVX2 versions of normalize.rs and flip.rs.
//!
//! In: one row. Out: the part that whole vectors cover, and its length; the caller does the rest. The operations and their order
//! are those of the scalar definition, so the bytes are the same. All loads and stores are in the functions at the end (C6).

use std::arch::x86_64::{
    __m128i, __m256, _CMP_UNORD_Q, _MM_FROUND_TO_NEAREST_INT, _mm_loadl_epi64, _mm_loadu_si128, _mm_or_si128,
    _mm_packus_epi32, _mm_sfence, _mm_shuffle_epi8, _mm_srli_si128, _mm_storeu_si128, _mm256_add_epi32, _mm256_add_ps,
    _mm256_and_si256, _mm256_blendv_epi8, _mm256_castps_si256, _mm256_castsi256_si128, _mm256_cmp_ps,
    _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32, _mm256_cvtps_ph, _mm256_extracti128_si256, _mm256_mul_ps,
    _mm256_or_si256, _mm256_set1_epi32, _mm256_set1_ps, _mm256_srli_epi32, _mm256_storeu_ps, _mm256_stream_ps,
};

use crate::kernels::normalize::{Affine, Number, NumberKind};

/// Pixels in a step of the plane kernels.
const PIXELS: usize = 16;

/// From this size of a plane's row on streaming stores pay off, which do not read the target first. A picture without gaps is one
/// row.
const MIN_STREAMED: usize = 64 << 10;

/// `SPLIT[channel][part]` picks the bytes of one channel out of the three parts of 16 pixels of RGB.
const SPLIT: [[[u8; 16]; 3]; 3] = {
    // A set high bit gives zero.
    let mut masks = [[[0x80; 16]; 3]; 3];
    let mut channel = 0;
    while channel < 3 {
        let mut pixel = 0;
        while pixel < PIXELS {
            let byte = pixel * 3 + channel;
            masks[channel][byte / 16][pixel] = (byte % 16) as u8;
            pixel += 1;
        }
        channel += 1;
    }
    masks
};

/// `JOINED[part][channel]` picks the bytes of one of three parts of 16 pixels of RGB out of a channel.
const JOINED: [[[u8; 16]; 3]; 3] = {
    let mut masks = [[[0x80; 16]; 3]; 3];
    let mut byte = 0;
    while byte < PIXELS * 3 {
        masks[byte / 16][byte % 3][byte % 16] = (byte / 3) as u8;
        byte += 1;
    }
    masks
};

/// `REVERSED[part][from]` picks the bytes of one of three parts of 16 reversed pixels of RGB out of the three old ones.
const REVERSED: [[[u8; 16]; 3]; 3] = {
    let mut masks = [[[0x80; 16]; 3]; 3];
    let mut byte = 0;
    while byte < PIXELS * 3 {
        let from = (PIXELS - 1 - byte / 3) * 3 + byte % 3;
        masks[byte / 16][from / 16][byte % 16] = (from % 16) as u8;
        byte += 1;
    }
    masks
};

/// Exchanges and reverses blocks of RGB from both ends of a row; returns how many bytes of each end are done.
#[target_feature(enable = "avx2,f16c")]
pub(super) fn swap_ends(row: &mut [u8]) -> usize {
    const BLOCK: usize = PIXELS * 3;
    let half = row.len() / 2;
    let (left, right) = row.split_at_mut(half);
    // Whole blocks from both ends. The halves never overlap, so each block is read before it is overwritten.
    let (left, right) = (left.as_chunks_mut::<BLOCK>().0, right.as_rchunks_mut::<BLOCK>().1);
    for (left, right) in left.iter_mut().zip(right.iter_mut().rev()) {
        let (from_left, from_right) = (reversed(left), reversed(right));
        store_block(from_right, left);
        store_block(from_left, right);
    }
    left.len() * BLOCK
}

/// Sixteen pixels of RGB in reverse order.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn reversed(bytes: &[u8; PIXELS * 3]) -> [__m128i; 3] {
    let parts = bytes.as_chunks::<16>().0;
    select([load_16(&parts[0]), load_16(&parts[1]), load_16(&parts[2])], &REVERSED)
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn store_block(vectors: [__m128i; 3], bytes: &mut [u8; PIXELS * 3]) {
    for (vector, bytes) in vectors.into_iter().zip(bytes.as_chunks_mut::<16>().0) {
        store_16(vector, bytes);
    }
}

/// See `normalize::split_numbers`.
#[target_feature(enable = "avx2,f16c")]
pub(super) fn split_numbers<N: Number>(row: &[u8], affine: Option<&Affine>, planes: [&mut [u8]; 3]) -> usize {
    let is_aligned = planes.iter().all(|plane| plane.as_ptr().addr().is_multiple_of(size_of::<__m256>()));
    if N::KIND != NumberKind::F32 || !is_aligned || planes[0].len() < MIN_STREAMED {
        return split_with::<N>(row, affine, planes, |values, place| store_numbers::<N>(values, place));
    }
    // A slab is larger than any cache, and its reader is another core or a device.
    let done = split_with::<N>(row, affine, planes, |values, place| {
        stream_f32(values, place.as_mut_array().expect("its caller cuts targets of eight numbers"));
    });
    // Streaming stores are weakly ordered. The fence makes the numbers visible before the slot counts as filled.
    _mm_sfence();
    done
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn split_with<N: Number>(
    row: &[u8],
    affine: Option<&Affine>,
    planes: [&mut [u8]; 3],
    store: impl Fn(__m256, &mut [u8]),
) -> usize {
    let steps = row.as_chunks::<{ PIXELS * 3 }>().0;
    let [r, g, b] = planes;
    let chunk = PIXELS * N::BYTES;
    let places = r.chunks_exact_mut(chunk).zip(g.chunks_exact_mut(chunk)).zip(b.chunks_exact_mut(chunk));
    let arithmetic = [0, 1, 2].map(|channel| Arithmetic::of(affine, [channel; 8]));
    for (bytes, ((r, g), b)) in steps.iter().zip(places) {
        let channels = split(bytes);
        for (place, (bytes, arithmetic)) in [r, g, b].into_iter().zip(channels.into_iter().zip(&arithmetic)) {
            let (low, high) = place.split_at_mut(chunk / 2);
            store(arithmetic.apply(bytes), low);
            store(arithmetic.apply(_mm_srli_si128::<8>(bytes)), high);
        }
    }
    steps.len() * PIXELS
}

/// See `normalize::convert_bytes`.
#[target_feature(enable = "avx2,f16c")]
pub(super) fn convert_bytes<N: Number>(
    row: &[u8],
    affine: Option<&Affine>,
    channels: usize,
    target: &mut [u8],
) -> usize {
    // The channels repeat after 24 bytes, whether there is one or three.
    const STEP: usize = 24;
    let steps = row.as_chunks::<STEP>().0;
    let arithmetic = [0, 1, 2].map(|part| {
        let mut order = [0; 8];
        order.iter_mut().enumerate().for_each(|(i, channel)| *channel = (part * 8 + i) % channels);
        Arithmetic::of(affine, order)
    });
    for (bytes, places) in steps.iter().zip(target.chunks_exact_mut(STEP * N::BYTES)) {
        let parts = bytes.as_chunks::<8>().0.iter().zip(places.chunks_exact_mut(8 * N::BYTES));
        for ((bytes, place), arithmetic) in parts.zip(&arithmetic) {
            store_numbers::<N>(arithmetic.apply(load_8(bytes)), place);
        }
    }
    steps.len() * STEP
}

/// See `split::split_row`.
#[target_feature(enable = "avx2,f16c")]
pub(super) fn split_bytes(row: &[u8], planes: [&mut [u8]; 3]) -> usize {
    let steps = row.as_chunks::<{ PIXELS * 3 }>().0;
    let [r, g, b] = planes.map(|plane| plane.as_chunks_mut::<PIXELS>().0);
    for (bytes, ((r, g), b)) in steps.iter().zip(r.iter_mut().zip(g).zip(b)) {
        let [red, green, blue] = split(bytes);
        store_16(red, r);
        store_16(green, g);
        store_16(blue, b);
    }
    steps.len() * PIXELS
}

/// See `split::join_row`.
#[target_feature(enable = "avx2,f16c")]
pub(super) fn join_bytes(planes: [&[u8]; 3], row: &mut [u8]) -> usize {
    let [r, g, b] = planes.map(|plane| plane.as_chunks::<PIXELS>().0);
    let steps = row.as_chunks_mut::<{ PIXELS * 3 }>().0;
    for (bytes, ((r, g), b)) in steps.iter_mut().zip(r.iter().zip(g).zip(b)) {
        store_block(select([load_16(r), load_16(g), load_16(b)], &JOINED), bytes);
    }
    r.len() * PIXELS
}

/// Sixteen pixels of RGB as sixteen bytes of each channel.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn split(bytes: &[u8; PIXELS * 3]) -> [__m128i; 3] {
    let parts = bytes.as_chunks::<16>().0;
    select([load_16(&parts[0]), load_16(&parts[1]), load_16(&parts[2])], &SPLIT)
}

/// Three vectors, each assembled from bytes of the three given ones.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn select(parts: [__m128i; 3], masks: &[[[u8; 16]; 3]; 3]) -> [__m128i; 3] {
    let mut selected = parts;
    for (vector, masks) in selected.iter_mut().zip(masks) {
        let first = _mm_shuffle_epi8(parts[0], load_16(&masks[0]));
        let second = _mm_shuffle_epi8(parts[1], load_16(&masks[1]));
        let third = _mm_shuffle_epi8(parts[2], load_16(&masks[2]));
        *vector = _mm_or_si128(_mm_or_si128(first, second), third);
    }
    selected
}

/// `normalize::value` for eight bytes at once.
struct Arithmetic {
    affine: Option<(__m256, __m256)>,
}

impl Arithmetic {
    /// For eight bytes of the given channels.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn of(affine: Option<&Affine>, channels: [usize; 8]) -> Self {
        let Some(affine) = affine else { return Self { affine: None } };
        let pick = |values: [f32; 3]| channels.map(|channel| values[channel]);
        Self { affine: Some((load_f32(&pick(affine.scale)), load_f32(&pick(affine.bias)))) }
    }

    /// The low eight bytes of `bytes`.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn apply(&self, bytes: __m128i) -> __m256 {
        let value = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)), _mm256_set1_ps(1.0 / 255.0));
        match self.affine {
            Some((scale, bias)) => _mm256_add_ps(_mm256_mul_ps(value, scale), bias),
            None => value,
        }
    }
}

/// Eight numbers, rounded to `N`.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn store_numbers<N: Number>(values: __m256, target: &mut [u8]) {
    let reason = "the caller cuts targets of eight numbers";
    match N::KIND {
        NumberKind::F32 => store_f32(values, target.as_mut_array().expect(reason)),
        NumberKind::F16 => {
            let rounded = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values);
            store_16(rounded, target.as_mut_array().expect(reason));
        }
        NumberKind::Bf16 => store_16(round_bf16(values), target.as_mut_array().expect(reason)),
    }
}

/// Rounds to nearest, ties to even; a NaN keeps its high bits and becomes quiet, as in `half`.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn round_bf16(values: __m256) -> __m128i {
    let bits = _mm256_castps_si256(values);
    let high = _mm256_srli_epi32::<16>(bits);
    // Adding 0x7fff plus the lowest kept bit rounds to nearest, ties to even, when the low 16 bits are cut off.
    let odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    let rounded = _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))));
    let quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(values, values));
    let result = _mm256_blendv_epi8(rounded, quiet, is_nan);
    // Values are below 2^16, so the saturation of `packus` never acts.
    _mm_packus_epi32(_mm256_castsi256_si128(result), _mm256_extracti128_si256::<1>(result))
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn load_8(bytes: &[u8; 8]) -> __m128i {
    // SAFETY: C6.
    unsafe { _mm_loadl_epi64(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn load_16(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: C6.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn load_f32(values: &[f32; 8]) -> __m256 {
    // SAFETY: C6.
    unsafe { std::arch::x86_64::_mm256_loadu_ps(values.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn store_16(vector: __m128i, target: &mut [u8; 16]) {
    // SAFETY: C6.
    unsafe { _mm_storeu_si128(target.as_mut_ptr().cast(), vector) }
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn store_f32(vector: __m256, target: &mut [u8; 32]) {
    // SAFETY: C6.
    unsafe { _mm256_storeu_ps(target.as_mut_ptr().cast(), vector) }
}

/// Bypasses the caches.
#[inline]
#[target_feature(enable = "avx2,f16c")]
#[expect(clippy::cast_ptr_alignment, reason = "the assertion checks it")]
fn stream_f32(vector: __m256, target: &mut [u8; 32]) {
    let target = target.as_mut_ptr().cast::<f32>();
    assert!(target.addr().is_multiple_of(size_of::<__m256>()), "the caller checks the alignment");
    // SAFETY: C6; the address was asserted.
    unsafe { _mm256_stream_ps(target, vector) }
}
