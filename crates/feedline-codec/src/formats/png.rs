//! PNG, row by row.
//!
//! In: the bytes of a file. Out: rows; `cancel` is called every few hundred KB. Checksums are verified. Text and colour profiles
//! are skipped unread, because they are compressed and could be of any size.
//!
//! A part of a file is read only down to its last row. `png_plain.rs` reads parts of the usual files faster.

use std::io::{self, Cursor};

use png::{BitDepth, ColorType, Decoder, DecodingError, InterlaceInfo, Limits, Reader, Transformations};

use crate::error::CodecError;
use crate::format::Format;
use crate::formats::colour::{self, Layout};
use crate::formats::{deep_pixels, png_plain};
use crate::memory::{grow, with_scratch};
use crate::options::{Mode, Target};
use crate::rect::Rect;

/// Bytes of output between two calls of `cancel`.
const STRIP_BYTES: usize = 256 << 10;

/// Memory for the decoder's own tables and chunks, besides its rows.
const WORK_BYTES: usize = 32 << 20;

type PngReader<'b> = Reader<Cursor<&'b [u8]>>;

/// Decodes a whole file.
pub(crate) fn decode(bytes: &[u8], target: &mut Target<'_, '_>) -> Result<(), CodecError> {
    let (mut reader, rows) = open(bytes, target)?;
    if reader.info().interlaced {
        decode_interlaced(&mut reader, rows, target)?;
    } else {
        decode_rows(&mut reader, rows, Rect::whole(target.width, target.height), target)?;
    }
    // Verifies what follows the last row, above all its checksum.
    reader.read_row(&mut []).map(|_| ()).map_err(error)
}

/// Decodes the part of a file that contains a crop. Returns the part.
pub(crate) fn decode_part(bytes: &[u8], crop: Rect, target: &mut Target<'_, '_>) -> Result<Rect, CodecError> {
    if let Some(layout) = png_plain::layout(bytes, target.width) {
        png_plain::decode_part(bytes, layout, crop, target)?;
        return Ok(crop);
    }
    let (mut reader, rows) = open(bytes, target)?;
    if reader.info().interlaced {
        decode_interlaced(&mut reader, rows, target)?;
        return Ok(Rect::whole(target.width, target.height));
    }
    decode_rows(&mut reader, rows, crop, target)?;
    Ok(crop)
}

/// Decodes a crop of a file of 16 bits.
pub(crate) fn decode_deep(bytes: &[u8], crop: Rect, target: &mut Target<'_, '_>) -> Result<(), CodecError> {
    let (mut reader, rows) = open(bytes, target)?;
    let options = target.options;
    let samples = rows.layout.channels();
    let is_rgb = samples >= 3;
    let is_interlaced = reader.info().interlaced;
    let row_bytes = crop.width as usize * usize::from(options.mode.pixel_bytes());
    let write = |stored: &[u8], target: &mut [u8]| {
        let stored = &stored.as_chunks::<2>().0[crop.left as usize * samples..];
        deep_pixels::write(samples, is_rgb, options.mode, |at| u16::from_be_bytes(stored[at]), target);
    };
    let (height, pixels) = (target.height, target.pixels(crop.width, crop.height)?);
    let mut pixels = pixels.chunks_exact_mut(row_bytes);
    with_scratch(|scratch| {
        if is_interlaced {
            let stored = grow(scratch, rows.stored_bytes as u64 * u64::from(height))?;
            options.check_cancel()?;
            reader.next_frame(stored).map_err(error)?;
            let stored = stored.chunks_exact(rows.stored_bytes).skip(crop.top as usize);
            stored.zip(pixels).for_each(|(stored, target)| write(stored, target));
            return Ok(());
        }
        let rows_per_check = (STRIP_BYTES / rows.stored_bytes).max(1) as u32;
        let stored = grow(scratch, rows.stored_bytes as u64)?;
        for y in 0..crop.bottom() {
            if y.is_multiple_of(rows_per_check) {
                options.check_cancel()?;
            }
            reader.read_row(stored).map_err(error)?;
            if y >= crop.top
                && let Some(target) = pixels.next()
            {
                write(stored, target);
            }
        }
        if crop.bottom() == height {
            // Verifies what follows the last row, above all its checksum.
            reader.read_row(&mut []).map_err(error)?;
        }
        Ok(())
    })
}

/// Reads the header.
fn open<'b>(bytes: &'b [u8], target: &Target<'_, '_>) -> Result<(PngReader<'b>, Rows), CodecError> {
    let mode = target.options.mode;
    // A pixel has at most eight bytes, and the decoder holds a few rows.
    let limits = Limits { bytes: WORK_BYTES.saturating_add((target.width as usize).saturating_mul(32)) };
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let stored = decoder.read_header_info().map_err(error)?.color_type;
    let is_index = mode == Mode::Mask && stored == ColorType::Indexed;
    if mode == Mode::Mask {
        check_mask(stored)?;
    }
    // A mask of a palette picture is the index itself. All else becomes 8 bits per channel.
    decoder.set_transformations(if is_index {
        Transformations::IDENTITY
    } else if mode.is_deep() {
        Transformations::EXPAND
    } else {
        Transformations::EXPAND | Transformations::STRIP_16
    });
    let reader = decoder.read_info().map_err(error)?;
    target.check_size(Format::Png, reader.info().width, reader.info().height)?;

    let (colour, depth) = reader.output_color_type();
    let rows = Rows {
        layout: match colour {
            ColorType::Grayscale | ColorType::Indexed => Layout::Grey,
            ColorType::GrayscaleAlpha => Layout::GreyAlpha,
            ColorType::Rgb => Layout::Rgb,
            ColorType::Rgba => Layout::Rgba,
        },
        depth,
        mode,
        stored_bytes: reader.output_line_size(target.width).ok_or(CodecError::OutOfMemory { bytes: u64::MAX })?,
    };
    Ok((reader, rows))
}

/// Writes a part of the picture.
fn decode_rows(
    reader: &mut PngReader<'_>,
    rows: Rows,
    part: Rect,
    target: &mut Target<'_, '_>,
) -> Result<(), CodecError> {
    let options = target.options;
    let channels = usize::from(options.mode.channels());
    let (full_row, columns) =
        (target.width as usize * channels, part.left as usize * channels..part.right() as usize * channels);
    let is_whole_row = columns.len() == full_row;
    let rows_per_strip = (STRIP_BYTES / full_row).max(1);
    with_scratch(|scratch| {
        // A row as it is stored, then the same row converted.
        let (stored, converted) = grow(scratch, (rows.stored_bytes + full_row) as u64)?.split_at_mut(rows.stored_bytes);
        let mut pixels = target.pixels(part.width, part.height)?.chunks_exact_mut(columns.len());
        for y in 0..part.bottom() as usize {
            if y.is_multiple_of(rows_per_strip) {
                options.check_cancel()?;
            }
            // Rows above the part are read too, because a row may be stored as its difference from the one above.
            let row = if y < part.top as usize { None } else { pixels.next() };
            let Some(row) = row else {
                reader.read_row(stored).map_err(error)?;
                continue;
            };
            if is_whole_row && rows.need_no_change() {
                reader.read_row(row).map_err(error)?;
                continue;
            }
            reader.read_row(stored).map_err(error)?;
            if is_whole_row {
                rows.convert(stored, row);
            } else {
                rows.convert(stored, converted);
                row.copy_from_slice(&converted[columns.clone()]);
            }
        }
        Ok(())
    })
}

/// The seven passes are combined in work memory, then converted.
fn decode_interlaced(reader: &mut PngReader<'_>, rows: Rows, target: &mut Target<'_, '_>) -> Result<(), CodecError> {
    let options = target.options;
    with_scratch(|scratch| {
        let stored = grow(scratch, rows.stored_bytes as u64 * u64::from(target.height))?;
        // Pixels smaller than a byte are or-ed in.
        stored.fill(0);
        let bits_per_pixel = rows.layout.channels() as u8 * rows.depth as u8;
        // Large at first, so that the first row checks too.
        let mut since_check = usize::MAX / 2;
        loop {
            if since_check >= STRIP_BYTES {
                options.check_cancel()?;
                since_check = 0;
            }
            let Some(row) = reader.next_interlaced_row().map_err(error)? else { break };
            since_check += row.data().len();
            if let InterlaceInfo::Adam7(pass) = row.interlace() {
                png::expand_interlaced_row(stored, rows.stored_bytes, row.data(), pass, bits_per_pixel);
            }
        }
        let row_bytes = target.width as usize * usize::from(options.mode.channels());
        let pixels = target.pixels(target.width, target.height)?.chunks_exact_mut(row_bytes);
        for (stored, row) in stored.chunks_exact(rows.stored_bytes).zip(pixels) {
            rows.convert(stored, row);
        }
        Ok(())
    })
}

/// The decoder's row format, and the requested one.
#[derive(Clone, Copy)]
struct Rows {
    layout: Layout,
    depth: BitDepth,
    mode: Mode,
    /// Bytes of a row from the decoder.
    stored_bytes: usize,
}

impl Rows {
    fn need_no_change(self) -> bool {
        self.depth == BitDepth::Eight && self.layout.channels() == usize::from(self.mode.channels())
    }

    fn convert(self, stored: &[u8], row: &mut [u8]) {
        match self.depth {
            BitDepth::One | BitDepth::Two | BitDepth::Four => unpack(stored, self.depth as usize, row),
            _ if self.mode == Mode::Rgb => colour::to_rgb(self.layout, stored, row),
            _ => colour::to_grey(self.layout, stored, row),
        }
    }
}

/// Palette indices of 1, 2 or 4 bits, the first in the high bits.
fn unpack(stored: &[u8], bits: usize, row: &mut [u8]) {
    let per_byte = 8 / bits;
    for (indices, &byte) in row.chunks_mut(per_byte).zip(stored) {
        for (i, index) in indices.iter_mut().enumerate() {
            // Shift the index to the low end, then mask its bits.
            *index = (byte >> (8 - bits * (i + 1))) & (0xff >> (8 - bits));
        }
    }
}

pub(super) fn check_mask(stored: ColorType) -> Result<(), CodecError> {
    let found = match stored {
        ColorType::Grayscale | ColorType::Indexed => return Ok(()),
        ColorType::GrayscaleAlpha => "grey with alpha",
        ColorType::Rgb => "RGB colour",
        ColorType::Rgba => "RGB colour with alpha",
    };
    Err(CodecError::NotAMask { format: Format::Png, found })
}

pub(super) fn error(error: DecodingError) -> CodecError {
    match error {
        DecodingError::IoError(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => {
            CodecError::truncated(Format::Png, "the last chunk is incomplete")
        }
        DecodingError::LimitsExceeded => {
            CodecError::damaged(Format::Png, "it needs more memory than its size explains")
        }
        other => CodecError::damaged(Format::Png, other.to_string()),
    }
}
