//! Reconstructs rows of PNG that are stored as differences from their neighbours.
//!
//! In: a stored row and the reconstructed row above it, both from the first column on. Out: the row, in place. Any number of
//! columns may be missing at the right, because no pixel depends on those to its right.

/// The filter of most rows of photographs.
const PAETH: u8 = 4;

/// Reconstructs two rows, the second below the first. Returns the filter that does not exist if there is one.
pub(super) fn reconstruct_pair(
    filters: [u8; 2],
    channels: usize,
    above: &[u8],
    [first, second]: [&mut [u8]; 2],
) -> Result<(), u8> {
    match (filters, channels) {
        ([PAETH, PAETH], 1) => paeth_pair::<1>(above, first, second),
        ([PAETH, PAETH], 2) => paeth_pair::<2>(above, first, second),
        ([PAETH, PAETH], 3) => paeth_pair::<3>(above, first, second),
        ([PAETH, PAETH], _) => paeth_pair::<4>(above, first, second),
        _ => {
            reconstruct(filters[0], channels, above, first)?;
            reconstruct(filters[1], channels, first, second)?;
        }
    }
    Ok(())
}

/// Reconstructs a row. Returns the filter if it does not exist.
pub(super) fn reconstruct(filter: u8, channels: usize, above: &[u8], row: &mut [u8]) -> Result<(), u8> {
    match channels {
        1 => reconstruct_as::<1>(filter, above, row),
        2 => reconstruct_as::<2>(filter, above, row),
        3 => reconstruct_as::<3>(filter, above, row),
        _ => reconstruct_as::<4>(filter, above, row),
    }
}

fn reconstruct_as<const CHANNELS: usize>(filter: u8, above: &[u8], row: &mut [u8]) -> Result<(), u8> {
    match filter {
        0 => {}
        1 => sub::<CHANNELS>(row),
        2 => row.iter_mut().zip(above).for_each(|(value, &up)| *value = value.wrapping_add(up)),
        3 => average::<CHANNELS>(above, row),
        PAETH => paeth::<CHANNELS>(above, row),
        _ => return Err(filter),
    }
    Ok(())
}

fn sub<const CHANNELS: usize>(row: &mut [u8]) {
    let mut left = [0_u8; CHANNELS];
    for pixel in row.as_chunks_mut::<CHANNELS>().0 {
        for (value, left) in pixel.iter_mut().zip(&mut left) {
            *value = value.wrapping_add(*left);
            *left = *value;
        }
    }
}

fn average<const CHANNELS: usize>(above: &[u8], row: &mut [u8]) {
    let mut left = [0_u8; CHANNELS];
    for (pixel, up) in row.as_chunks_mut::<CHANNELS>().0.iter_mut().zip(above.as_chunks::<CHANNELS>().0) {
        for ((value, left), &up) in pixel.iter_mut().zip(&mut left).zip(up) {
            *value = value.wrapping_add(left.midpoint(up));
            *left = *value;
        }
    }
}

fn paeth<const CHANNELS: usize>(above: &[u8], row: &mut [u8]) {
    let (mut left, mut corner) = ([0_i16; CHANNELS], [0_i16; CHANNELS]);
    for (pixel, up) in row.as_chunks_mut::<CHANNELS>().0.iter_mut().zip(above.as_chunks::<CHANNELS>().0) {
        for channel in 0..CHANNELS {
            let up = i16::from(up[channel]);
            let value = pixel[channel].wrapping_add(nearest(left[channel], up, corner[channel]));
            pixel[channel] = value;
            left[channel] = i16::from(value);
            corner[channel] = up;
        }
    }
}

fn paeth_pair<const CHANNELS: usize>(above: &[u8], first: &mut [u8], second: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: C5, every x86_64 processor has SSE2.
    unsafe {
        paeth_pair_sse2::<CHANNELS>(above, first, second);
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        paeth::<CHANNELS>(above, first);
        paeth::<CHANNELS>(first, second);
    }
}

/// Reconstructs two rows at once. Each pixel waits for its left neighbour, so one row alone leaves most of a vector unit idle. The
/// second row follows one column behind the first, from which it takes the pixels above it. The lanes are four channels of each.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
fn paeth_pair_sse2<const CHANNELS: usize>(above: &[u8], first: &mut [u8], second: &mut [u8]) {
    use std::arch::x86_64::{
        _mm_add_epi8, _mm_add_epi16, _mm_and_si128, _mm_andnot_si128, _mm_cmpgt_epi16, _mm_cvtsi64_si128,
        _mm_cvtsi128_si64, _mm_max_epi16, _mm_min_epi16, _mm_or_si128, _mm_packus_epi16, _mm_set1_epi16,
        _mm_setzero_si128, _mm_slli_epi16, _mm_sub_epi16, _mm_unpacklo_epi8, _mm_unpacklo_epi64,
    };

    let (above, first) = (above.as_chunks::<CHANNELS>().0, first.as_chunks_mut::<CHANNELS>().0);
    let second = second.as_chunks_mut::<CHANNELS>().0;
    let columns = above.len();
    assert!(first.len() == columns && second.len() == columns, "three rows of {columns} pixels");
    let zero = _mm_setzero_si128();
    let (mut left, mut corner) = (zero, zero);
    for column in 0..=columns {
        // Outside of a row all is zero, and stays zero.
        let (up, upper) = if column < columns { (wide(above[column]), wide(first[column])) } else { (0, 0) };
        let lower = if column > 0 { wide(second[column - 1]) } else { 0 };
        let stored = _mm_unpacklo_epi8(_mm_cvtsi64_si128((upper | lower << 32).cast_signed()), zero);
        let up = _mm_unpacklo_epi64(_mm_unpacklo_epi8(_mm_cvtsi64_si128(up.cast_signed()), zero), left);
        // As `nearest`.
        let limit = _mm_sub_epi16(_mm_sub_epi16(_mm_add_epi16(_mm_slli_epi16(corner, 1), corner), up), left);
        let (low, high) = (_mm_min_epi16(left, up), _mm_max_epi16(left, up));
        let is_corner = _mm_cmpgt_epi16(high, limit);
        let inner = _mm_or_si128(_mm_and_si128(is_corner, corner), _mm_andnot_si128(is_corner, low));
        let is_inner = _mm_cmpgt_epi16(limit, low);
        let predicted = _mm_or_si128(_mm_and_si128(is_inner, inner), _mm_andnot_si128(is_inner, high));
        left = _mm_and_si128(_mm_add_epi8(stored, predicted), _mm_set1_epi16(255));
        corner = up;
        let values = _mm_cvtsi128_si64(_mm_packus_epi16(left, left)).to_le_bytes();
        if column < columns {
            first[column].copy_from_slice(&values[..CHANNELS]);
        }
        if column > 0 {
            second[column - 1].copy_from_slice(&values[4..4 + CHANNELS]);
        }
    }
}

/// The channels of a pixel in the low bytes of a number.
#[cfg(target_arch = "x86_64")]
fn wide<const CHANNELS: usize>(pixel: [u8; CHANNELS]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..CHANNELS].copy_from_slice(&pixel);
    u64::from_le_bytes(bytes)
}

/// The neighbour nearest to left + up - corner, in this order if several are. Without branches: the form of `stb_image`, in which
/// most of the work does not wait for the pixel to the left.
fn nearest(left: i16, up: i16, corner: i16) -> u8 {
    let limit = corner * 3 - (left + up);
    let (low, high) = (left.min(up), left.max(up));
    let inner = if high <= limit { low } else { corner };
    (if limit <= low { high } else { inner }) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_neighbour_is_that_of_the_specification() {
        for left in (0..256_i16).step_by(5) {
            for up in 0..256_i16 {
                for corner in 0..256_i16 {
                    let estimate = left + up - corner;
                    // The first of equals, as in the specification.
                    let expected = [left, up, corner].into_iter().min_by_key(|value| (estimate - value).abs());
                    assert_eq!(Some(i16::from(nearest(left, up, corner))), expected, "{left} {up} {corner}");
                }
            }
        }
    }

    #[test]
    fn rows_that_lack_columns_begin_like_whole_rows() {
        let above: Vec<u8> = (0..60_u8).map(|i| i.wrapping_mul(91)).collect();
        let stored: Vec<u8> = (0..60_u8).map(|i| i.wrapping_mul(57) ^ 0x3c).collect();
        for channels in 1..=4 {
            for filter in 0..=4 {
                let (mut whole, mut part) = (stored.clone(), stored[..5 * channels].to_vec());
                reconstruct(filter, channels, &above, &mut whole).unwrap();
                reconstruct(filter, channels, &above[..5 * channels], &mut part).unwrap();
                assert_eq!(whole[..5 * channels], part);
            }
            assert_eq!(reconstruct(5, channels, &above, &mut stored.clone()), Err(5));
        }
    }

    #[test]
    fn two_rows_at_once_are_those_of_one_after_the_other() {
        let [above, first, second] =
            [91_u8, 57, 201].map(|factor| (0..60).map(|i: u8| i.wrapping_mul(factor)).collect::<Vec<u8>>());
        for channels in 1..=4 {
            for columns in [0, 1, 2, 15] {
                let len = columns * channels;
                for filters in [[4, 4], [4, 1], [3, 4], [0, 2]] {
                    let (mut upper, mut lower) = (first[..len].to_vec(), second[..len].to_vec());
                    let (mut expected_upper, mut expected_lower) = (upper.clone(), lower.clone());
                    reconstruct_pair(filters, channels, &above[..len], [&mut upper, &mut lower]).unwrap();
                    reconstruct(filters[0], channels, &above[..len], &mut expected_upper).unwrap();
                    reconstruct(filters[1], channels, &expected_upper, &mut expected_lower).unwrap();
                    assert_eq!((upper, lower), (expected_upper, expected_lower), "{filters:?} {channels}");
                }
            }
        }
    }
}
