//! BMP and GIF through the `image` crate.
//!
//! In: the bytes of a file. Out: the first frame. These decoders return a whole picture at once, so `cancel` is called before and
//! after, not within.

use std::error::Error;
use std::io::{self, Cursor};
use std::panic::{AssertUnwindSafe, catch_unwind};

use image::codecs::bmp::BmpDecoder;
use image::codecs::gif::GifDecoder;
use image::{ColorType, ImageDecoder, ImageError, Limits};

use crate::error::CodecError;
use crate::format::Format;
use crate::formats::colour::{self, Layout};
use crate::memory::{grow, with_scratch};
use crate::options::{Mode, Target};

/// Memory for tables and chunks, besides pixels.
const WORK_BYTES: u64 = 32 << 20;

/// Decodes a whole file of one of the two formats.
pub(crate) fn decode(bytes: &[u8], format: Format, target: &mut Target<'_, '_>) -> Result<(), CodecError> {
    let options = target.options;
    // These decoders have panicked on odd files, and a bad file must not end a thread. No code of the caller runs inside, and a
    // panic leaves behind only bytes of pixels.
    let result = catch_unwind(AssertUnwindSafe(|| decode_or_panic(bytes, format, target)));
    result.unwrap_or_else(|_| Err(CodecError::damaged(format, "the decoder panicked")))?;
    options.check_cancel()
}

fn decode_or_panic(bytes: &[u8], format: Format, target: &mut Target<'_, '_>) -> Result<(), CodecError> {
    let source = Cursor::new(bytes);
    let is_mask = target.options.mode == Mode::Mask;
    let convert = |cause| error(format, &cause);
    match format {
        Format::Bmp => {
            let mut decoder = BmpDecoder::new(source).map_err(convert)?;
            if is_mask {
                if decoder.get_palette().is_none() {
                    return Err(CodecError::NotAMask { format, found: "RGB colour" });
                }
                if !has_plain_indices(bytes) {
                    return Err(CodecError::unsupported(format, "a mask of other than 8 bits, or compressed"));
                }
                decoder.set_indexed_color(true);
            }
            read(decoder, format, target)
        }
        _ if is_mask => Err(CodecError::unsupported(format, "masks; store masks as grey or palette PNG")),
        _ => read(GifDecoder::new(source).map_err(convert)?, format, target),
    }
}

fn read(mut decoder: impl ImageDecoder, format: Format, target: &mut Target<'_, '_>) -> Result<(), CodecError> {
    let convert = |cause| error(format, &cause);
    let (width, height) = decoder.dimensions();
    target.check_size(format, width, height)?;
    let layout = match decoder.color_type() {
        ColorType::L8 => Layout::Grey,
        ColorType::La8 => Layout::GreyAlpha,
        ColorType::Rgb8 => Layout::Rgb,
        ColorType::Rgba8 => Layout::Rgba,
        other => return Err(CodecError::unsupported(format, format!("pixels of type {other:?}"))),
    };
    let stored_bytes = decoder.total_bytes();
    let mut limits = Limits::default();
    // The output, the frame before compositing, and as much again for the decoder's own planes.
    limits.max_alloc = Some(WORK_BYTES + u64::from(width) * u64::from(height) * 16);
    decoder.set_limits(limits).map_err(convert)?;

    let options = target.options;
    let pixels = target.pixels(target.width, target.height)?;
    // The decoder's layout is the requested one, so it writes straight into the target.
    if stored_bytes == pixels.len() as u64 {
        decoder.read_image(pixels).map_err(convert)?;
    } else {
        with_scratch(|scratch| {
            let stored = grow(scratch, stored_bytes)?;
            // A frame smaller than the canvas leaves the rest unchanged.
            stored.fill(0);
            decoder.read_image(stored).map_err(convert)?;
            match options.mode {
                Mode::Rgb => colour::to_rgb(layout, stored, pixels),
                _ => colour::to_grey(layout, stored, pixels),
            }
            Ok::<(), CodecError>(())
        })?;
    }
    Ok(())
}

/// Whether a BMP has 8 bits per pixel, uncompressed. `image` panics if the indices of other files are requested.
fn has_plain_indices(bytes: &[u8]) -> bool {
    let at = |range| bytes.get(range).unwrap_or_default();
    match at(14..18) {
        // A header of 12 bytes is that of OS/2: bits per pixel at 24, never compressed. Later headers: bits at 28, compression
        // at 30.
        [12, 0, 0, 0] => at(24..26) == [8, 0],
        _ => at(28..30) == [8, 0] && at(30..34) == [0; 4],
    }
}

fn error(format: Format, cause: &ImageError) -> CodecError {
    match cause {
        ImageError::Unsupported(_) => CodecError::unsupported(format, cause.to_string()),
        ImageError::Limits(_) => CodecError::damaged(format, "it needs more memory than its size explains"),
        _ if ended_early(cause) => CodecError::truncated(format, cause.to_string()),
        _ => CodecError::damaged(format, cause.to_string()),
    }
}

/// The end of the data appears as an I/O error somewhere in the chain.
fn ended_early(cause: &ImageError) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = Some(cause);
    while let Some(error) = next {
        if error.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::UnexpectedEof) {
            return true;
        }
        next = error.source();
    }
    false
}
