//! Encodes JPEG with libjpeg-turbo.

use std::ffi::c_int;
use std::ptr::NonNull;

use super::jpeg::Status;
use crate::error::CodecError;

/// Chroma subsampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subsampling {
    /// Full chroma.
    S444,
    /// Chroma at half the width.
    S422,
    /// Chroma at half the width and height.
    S420,
    /// Chroma at half the height.
    S440,
    /// Chroma at a quarter of the width.
    S411,
    /// No chroma.
    Grey,
}

/// The entropy coding of a JPEG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JpegCoding {
    /// One scan, Huffman, the standard's tables.
    Baseline,
    /// One scan, Huffman, tables made for the picture.
    Optimised,
    /// One scan, Huffman, with a restart marker after this many MCUs.
    Restarts(u16),
    /// Extended sequential: as baseline, with quantisers of 16 bits where quality is low.
    Extended,
    /// Several scans, Huffman.
    Progressive,
    /// Several scans, Huffman, for tests of decoders: the AC coefficients in `bands` scans (1 to 8), their last `refined` bits (up to
    /// 8) in scans of their own, and restart markers after so many units, if any. If `bands` is odd, the components share the scans
    /// of DC.
    Scans {
        /// Scans of AC coefficients for each component and bit.
        bands: u8,
        /// Bits with scans of their own.
        refined: u8,
        /// Units between restart markers; 0 without.
        restarts: u16,
    },
    /// One scan, arithmetic.
    Arithmetic,
}

/// Encodes packed rows. The caller has checked the sizes.
pub(crate) fn encode(
    pixels: &[u8],
    (width, height, channels): (u32, u32, u8),
    quality: u8,
    subsampling: Subsampling,
    coding: JpegCoding,
) -> Result<Vec<u8>, CodecError> {
    assert_eq!(pixels.len(), width as usize * height as usize * usize::from(channels), "the caller checks sizes");
    let (across, down) = match subsampling {
        Subsampling::S444 => (1, 1),
        Subsampling::S422 => (2, 1),
        Subsampling::S420 => (2, 2),
        Subsampling::S440 => (1, 2),
        Subsampling::S411 => (4, 1),
        // The shim takes 0 as "no chroma".
        Subsampling::Grey => (0, 0),
    };
    let (bands, refined) = match coding {
        JpegCoding::Scans { bands, refined, .. } => (c_int::from(bands), c_int::from(refined)),
        _ => (0, 0),
    };
    let (coding, restarts) = match coding {
        JpegCoding::Baseline => (0, 0),
        JpegCoding::Progressive => (1, 0),
        JpegCoding::Arithmetic => (2, 0),
        JpegCoding::Optimised => (3, 0),
        JpegCoding::Extended => (4, 0),
        JpegCoding::Scans { restarts, .. } => (5, c_int::from(restarts)),
        JpegCoding::Restarts(interval) => (0, c_int::from(interval)),
    };
    let (quality, channels) = (c_int::from(quality), u32::from(channels));
    let mut bytes = std::ptr::null_mut();
    let mut len = 0;
    let pixels = pixels.as_ptr();
    let status =
        // SAFETY: C2, the assertion above makes `pixels` as long as the shim reads; C4 for the two results.
        unsafe { fl_jpeg_encode(pixels, width, height, channels, quality, across, down, coding, restarts, bands, refined, &raw mut bytes, &raw mut len) };
    let Some(owned) = NonNull::new(bytes).filter(|_| status == Status::OK) else {
        return Err(CodecError::OutOfMemory { bytes: u64::from(width) * u64::from(height) * u64::from(channels) });
    };
    // The bytes are copied, so that the rest of the crate only sees memory of Rust's allocator.
    // SAFETY: C4, the shim returns `len` initialised bytes and keeps no pointer to them.
    let encoded = unsafe { std::slice::from_raw_parts(owned.as_ptr(), len) }.to_vec();
    // SAFETY: C4, freed once, and not used after.
    unsafe { fl_jpeg_free_bytes(owned.as_ptr()) };
    Ok(encoded)
}

unsafe extern "C" {
    fn fl_jpeg_encode(
        pixels: *const u8,
        width: u32,
        height: u32,
        channels: u32,
        quality: c_int,
        sampling_x: c_int,
        sampling_y: c_int,
        coding: c_int,
        restarts: c_int,
        bands: c_int,
        refined: c_int,
        bytes: *mut *mut u8,
        length: *mut usize,
    ) -> c_int;
    fn fl_jpeg_free_bytes(bytes: *mut u8);
}
