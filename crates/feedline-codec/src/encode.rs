//! Encodes pixels to files, for synthetic data, for showing samples and for tests.
//!
//! In: packed pixels. Out: a JPEG, PNG or WebP file. Not built for speed.

use crate::error::CodecError;
use crate::format::Format;
use crate::formats::{JpegCoding, Subsampling, WebPCoding, jpeg_encode, webp_encode};

/// Encodes a baseline JPEG. Quality is 1 to 100.
pub fn encode_jpeg(
    pixels: &[u8],
    width: u32,
    height: u32,
    channels: u8,
    quality: u8,
    subsampling: Subsampling,
) -> Result<Vec<u8>, CodecError> {
    encode_jpeg_as(JpegCoding::Baseline, pixels, (width, height, channels), quality, subsampling)
}

/// Encodes a JPEG with the given coding; four channels are CMYK, stored as YCCK.
pub fn encode_jpeg_as(
    coding: JpegCoding,
    pixels: &[u8],
    (width, height, channels): (u32, u32, u8),
    quality: u8,
    subsampling: Subsampling,
) -> Result<Vec<u8>, CodecError> {
    let wrong = |reason| Err(CodecError::Shape { width, height, channels, reason });
    if !matches!(channels, 1 | 3 | 4) {
        return wrong("a JPEG has 1, 3 or 4 channels");
    }
    if channels == 4 && subsampling == Subsampling::Grey {
        return wrong("CMYK cannot be stored as grey");
    }
    if width.max(height) > 65_500 {
        return wrong("a side of a JPEG has at most 65500 pixels");
    }
    check(pixels, width, height, channels)?;
    let subsampling = if channels == 1 { Subsampling::Grey } else { subsampling };
    jpeg_encode::encode(pixels, (width, height, channels), quality.clamp(1, 100), subsampling, coding)
}

/// Encodes a PNG of 1 to 4 channels: grey, grey and alpha, RGB, RGB and alpha.
pub fn encode_png(pixels: &[u8], width: u32, height: u32, channels: u8) -> Result<Vec<u8>, CodecError> {
    let colour = match channels {
        1 => png::ColorType::Grayscale,
        2 => png::ColorType::GrayscaleAlpha,
        3 => png::ColorType::Rgb,
        4 => png::ColorType::Rgba,
        _ => return Err(CodecError::Shape { width, height, channels, reason: "a PNG has 1 to 4 channels" }),
    };
    check(pixels, width, height, channels)?;
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(colour);
    encoder.set_depth(png::BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(pixels)?;
        writer.finish()
    });
    written.map_err(|cause| CodecError::unsupported(Format::Png, cause.to_string()))?;
    Ok(bytes)
}

/// Encodes a WebP of three channels.
pub fn encode_webp(pixels: &[u8], width: u32, height: u32, coding: WebPCoding) -> Result<Vec<u8>, CodecError> {
    if width.max(height) > 16_383 {
        let reason = "a side of a WebP has at most 16383 pixels";
        return Err(CodecError::Shape { width, height, channels: 3, reason });
    }
    check(pixels, width, height, 3)?;
    webp_encode::encode(pixels, width, height, coding)
}

fn check(pixels: &[u8], width: u32, height: u32, channels: u8) -> Result<(), CodecError> {
    // In 128 bits, because the product of two u32 and a u8 exceeds 64 bits.
    let needed = u128::from(width) * u128::from(height) * u128::from(channels);
    let reason = if needed == 0 {
        "there is no pixel"
    } else if pixels.len() as u128 != needed {
        "the pixels are not width x height x channels bytes"
    } else {
        return Ok(());
    };
    Err(CodecError::Shape { width, height, channels, reason })
}
