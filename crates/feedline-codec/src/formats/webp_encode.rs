//! Encodes WebP with libwebp.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use libwebp_sys::{
    WebPConfig, WebPConfigLosslessPreset, WebPEncode, WebPMemoryWrite, WebPMemoryWriter, WebPMemoryWriterClear,
    WebPMemoryWriterInit, WebPPicture, WebPPictureFree, WebPPictureImportRGB,
};

use crate::error::CodecError;

/// How pixels are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WebPCoding {
    /// Without loss.
    Lossless,
    /// With loss. The quality is 0 to 100.
    Lossy(u8),
    /// With loss and the simple loop filter, which leaves chroma as it is. The quality is 0 to 100.
    SimpleFilter(u8),
}

/// Effort of the lossless coding, of 9: files are a few percent longer than the shortest, and written many times faster.
const LOSSLESS_LEVEL: c_int = 2;

/// Encodes packed rows of three channels. The caller has checked the sizes.
pub(crate) fn encode(pixels: &[u8], width: u32, height: u32, coding: WebPCoding) -> Result<Vec<u8>, CodecError> {
    assert_eq!(pixels.len(), width as usize * height as usize * 3, "the caller checks sizes");
    let mut config = WebPConfig::new().expect("the headers belong to the vendored libwebp");
    match coding {
        WebPCoding::Lossless => {
            // SAFETY: C7, `config` is initialised.
            let is_valid = unsafe { WebPConfigLosslessPreset(&raw mut config, LOSSLESS_LEVEL) };
            assert_ne!(is_valid, 0, "level {LOSSLESS_LEVEL} exists");
        }
        WebPCoding::Lossy(quality) => config.quality = f32::from(quality.min(100)),
        WebPCoding::SimpleFilter(quality) => {
            config.quality = f32::from(quality.min(100));
            config.filter_type = 0;
        }
    }
    let mut written = MaybeUninit::uninit();
    // SAFETY: C7, it writes the whole struct.
    unsafe { WebPMemoryWriterInit(written.as_mut_ptr()) };
    // SAFETY: C7, the line above initialised it.
    let mut written: WebPMemoryWriter = unsafe { written.assume_init() };

    let mut picture = WebPPicture::new().expect("the headers belong to the vendored libwebp");
    (picture.width, picture.height) = (width as c_int, height as c_int);
    picture.use_argb = c_int::from(coding == WebPCoding::Lossless);
    picture.writer = Some(WebPMemoryWrite);
    picture.custom_ptr = (&raw mut written).cast();
    // SAFETY: C2, the assertion above makes `pixels` as long as libwebp reads; C7.
    let is_imported = unsafe { WebPPictureImportRGB(&raw mut picture, pixels.as_ptr(), width as c_int * 3) } != 0;
    // SAFETY: C7, `written` is where `custom_ptr` points, and outlives the call.
    let is_encoded = is_imported && unsafe { WebPEncode(&raw const config, &raw mut picture) } != 0;
    // SAFETY: C7, the picture is not used after.
    unsafe { WebPPictureFree(&raw mut picture) };
    let bytes = if is_encoded {
        // SAFETY: C7, the writer holds `size` initialised bytes.
        unsafe { std::slice::from_raw_parts(written.mem, written.size) }.to_vec()
    } else {
        Vec::new()
    };
    // SAFETY: C7, the writer is not used after.
    unsafe { WebPMemoryWriterClear(&raw mut written) };
    if is_encoded { Ok(bytes) } else { Err(CodecError::OutOfMemory { bytes: pixels.len() as u64 }) }
}
