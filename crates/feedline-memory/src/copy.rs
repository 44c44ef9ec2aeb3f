//! Copies whole samples into a slab, bypassing the caches.
//!
//! A slab is larger than any cache, and its reader is another core or a device. So the bytes need not pass through the cache of the
//! copying core. Streaming stores avoid reading the target first, which leaves two thirds of the memory traffic of an ordinary copy
//! (bench/results/arrays.json).

/// From this size on streaming stores pay off.
const MIN_STREAMED: usize = 32 << 10;

/// Copies `target.len()` bytes from `source`.
///
/// # Safety
///
/// `source` must be readable for `target.len()` bytes, and they must not overlap `target`.
pub unsafe fn copy_streaming(source: *const u8, target: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if target.len() >= MIN_STREAMED && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2 is there; the caller promises the rest.
        unsafe { copy_avx2(source, target) };
        return;
    }
    // SAFETY: the caller promises that both ranges are valid and apart.
    unsafe { std::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len()) }
}

/// As [`copy_streaming`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[expect(clippy::cast_ptr_alignment, reason = "loads are unaligned ones, and the target was aligned by `head`")]
unsafe fn copy_avx2(source: *const u8, target: &mut [u8]) {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
    const VECTOR: usize = size_of::<__m256i>();
    let head = target.as_ptr().align_offset(VECTOR).min(target.len());
    let vectors = (target.len() - head) / VECTOR;
    let (first, rest) = target.split_at_mut(head);
    let (middle, last) = rest.split_at_mut(vectors * VECTOR);
    // SAFETY: the source is readable for the whole target and apart from it.
    unsafe { std::ptr::copy_nonoverlapping(source, first.as_mut_ptr(), head) };
    // SAFETY: `head` is at most the length.
    let from = unsafe { source.add(head) }.cast::<__m256i>();
    let to = middle.as_mut_ptr().cast::<__m256i>();
    for number in 0..vectors {
        // SAFETY: `number` vectors of the middle part lie before this one.
        let from = unsafe { from.add(number) };
        // SAFETY: as above, for the target.
        let to = unsafe { to.add(number) };
        // SAFETY: the whole vector lies inside the source.
        let vector = unsafe { _mm256_loadu_si256(from) };
        // SAFETY: the whole vector lies inside the middle part, which begins at a multiple of its size.
        unsafe { _mm256_stream_si256(to, vector) };
    }
    // Streaming stores are weakly ordered. The fence makes the bytes visible before the slot counts as filled.
    _mm_sfence();
    // SAFETY: `head + vectors * VECTOR` is at most the length.
    let tail = unsafe { source.add(head + vectors * VECTOR) };
    // SAFETY: the source is readable for the whole target and apart from it.
    unsafe { std::ptr::copy_nonoverlapping(tail, last.as_mut_ptr(), last.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_for_any_length_and_alignment() {
        let source: Vec<u8> = (0..MIN_STREAMED + 200).map(|byte| (byte % 251) as u8).collect();
        for len in [0, 1, 31, MIN_STREAMED - 1, MIN_STREAMED, MIN_STREAMED + 97] {
            for shift in [0, 1, 17, 32, 63] {
                let mut target = vec![0xAA; len + shift + 64];
                // SAFETY: the source is longer than `shift + len` and another allocation.
                unsafe { copy_streaming(source[shift..].as_ptr(), &mut target[shift..shift + len]) };
                assert_eq!(target[shift..shift + len], source[shift..shift + len]);
                assert!(target[..shift].iter().chain(&target[shift + len..]).all(|&byte| byte == 0xAA));
            }
        }
    }
}
