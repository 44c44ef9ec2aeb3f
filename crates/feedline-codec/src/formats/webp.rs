//! WebP through libwebp.
//!
//! In: the bytes of a file. Out: the first frame, or the part of it that contains a crop. libwebp decodes a frame in one call, so
//! `cancel` is called before and after. It reads a frame from its top and stops below the crop. Alpha is never decoded, because it
//! is dropped.
//!
//! The first frame of an animation lies on black where it does not cover the picture.

use std::ffi::c_int;

use libwebp_sys::{VP8StatusCode, WEBP_CSP_MODE, WebPDecode, WebPDecoderConfig, WebPRGBABuffer};

use crate::error::CodecError;
use crate::format::Format;
use crate::formats::colour::{self, Layout};
use crate::header::WebPFrame;
use crate::memory::{grow, with_scratch};
use crate::options::{Mode, Target};
use crate::rect::Rect;

const CHANNELS: usize = 3;

/// Decodes a whole file.
pub(crate) fn decode(bytes: &[u8], target: &mut Target<'_, '_>) -> Result<(), CodecError> {
    decode_part(bytes, Rect::whole(target.width, target.height), target)?;
    Ok(())
}

/// Decodes the part of a file that contains a crop. Returns the part.
pub(crate) fn decode_part(bytes: &[u8], crop: Rect, target: &mut Target<'_, '_>) -> Result<Rect, CodecError> {
    let options = target.options;
    if options.mode == Mode::Mask {
        return Err(CodecError::NotAMask { format: Format::WebP, found: "RGB colour" });
    }
    let frame = WebPFrame::first(bytes, target.width, target.height)?;
    let part = with_neighbours(crop, target.width, target.height);
    let pixels = target.pixels(part.width, part.height)?;
    if options.mode == Mode::Rgb {
        decode_rgb(&frame, part, pixels)?;
    } else {
        with_scratch(|scratch| {
            let stored = grow(scratch, (pixels.len() * CHANNELS) as u64)?;
            decode_rgb(&frame, part, stored)?;
            colour::to_grey(Layout::Rgb, stored, pixels);
            Ok::<(), CodecError>(())
        })?;
    }
    options.check_cancel()?;
    Ok(part)
}

/// The crop with the pixels that its chroma depends on. Chroma has half the resolution and is interpolated between neighbours. At
/// the edge of a part libwebp repeats the last value, so the part ends one pixel outside. libwebp moves odd edges to even ones.
fn with_neighbours(crop: Rect, width: u32, height: u32) -> Rect {
    let (left, top) = (crop.left.saturating_sub(1) & !1, crop.top.saturating_sub(1) & !1);
    let (right, bottom) = ((crop.right() + 1).min(width), (crop.bottom() + 1).min(height));
    Rect { left, top, width: right - left, height: bottom - top }
}

/// Writes a part of the picture.
fn decode_rgb(frame: &WebPFrame<'_>, part: Rect, pixels: &mut [u8]) -> Result<(), CodecError> {
    let place = frame.place;
    if !place.contains(&part) {
        pixels.fill(0);
    }
    let (left, top) = (part.left.max(place.left), part.top.max(place.top));
    let (right, bottom) = (part.right().min(place.right()), part.bottom().min(place.bottom()));
    if left >= right || top >= bottom {
        return Ok(());
    }
    let inside = Rect { left, top, width: right - left, height: bottom - top };
    let stride = part.width as usize * CHANNELS;
    let start = (top - part.top) as usize * stride + (left - part.left) as usize * CHANNELS;
    decode_frame(frame.data, inside.seen_from(place.left, place.top), &mut pixels[start..], stride)
}

/// Writes a crop of a bitstream, each row `stride` bytes after the one before.
fn decode_frame(data: &[u8], crop: Rect, pixels: &mut [u8], stride: usize) -> Result<(), CodecError> {
    let mut config = WebPDecoderConfig::new().expect("the headers belong to the vendored libwebp");
    let side = |side: u32| c_int::try_from(side).expect("a side of a frame has at most 16384 pixels");
    config.options.use_cropping = 1;
    (config.options.crop_left, config.options.crop_top) = (side(crop.left), side(crop.top));
    (config.options.crop_width, config.options.crop_height) = (side(crop.width), side(crop.height));
    let stride = c_int::try_from(stride).expect("a side of a picture has at most 2^24 pixels");
    config.output.colorspace = WEBP_CSP_MODE::MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = WebPRGBABuffer { rgba: pixels.as_mut_ptr(), stride, size: pixels.len() };
    // SAFETY: C1 for `data`. C9: the output is `pixels`, with its length.
    let status = unsafe { WebPDecode(data.as_ptr(), data.len(), &raw mut config) };
    Err(match status {
        VP8StatusCode::VP8_STATUS_OK => return Ok(()),
        VP8StatusCode::VP8_STATUS_OUT_OF_MEMORY => {
            // Of a frame without loss libwebp holds all pixels, with four bytes each.
            CodecError::OutOfMemory { bytes: u64::from(crop.right()) * u64::from(crop.bottom()) * 4 }
        }
        VP8StatusCode::VP8_STATUS_NOT_ENOUGH_DATA | VP8StatusCode::VP8_STATUS_SUSPENDED => {
            CodecError::truncated(Format::WebP, "the pixels are incomplete")
        }
        VP8StatusCode::VP8_STATUS_UNSUPPORTED_FEATURE => CodecError::unsupported(Format::WebP, "the bitstream"),
        _ => CodecError::damaged(Format::WebP, "the bitstream is not valid"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_begins_at_even_places_and_has_a_pixel_more_on_each_side() {
        let crop = |left, top, width, height| Rect { left, top, width, height };
        assert_eq!(with_neighbours(crop(0, 0, 10, 8), 10, 8), crop(0, 0, 10, 8));
        assert_eq!(with_neighbours(crop(4, 3, 1, 2), 10, 8), crop(2, 2, 4, 4));
        assert_eq!(with_neighbours(crop(9, 7, 1, 1), 10, 8), crop(8, 6, 2, 2));
        assert_eq!(with_neighbours(crop(1, 2, 2, 2), 10, 8), crop(0, 0, 4, 5));
    }
}
