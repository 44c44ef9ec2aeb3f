//! Parts of the usual PNG files: 8 bits per channel, no palette, not interlaced.
//!
//! In: the bytes of a file and a crop. Out: exactly the crop. The `png` crate reads chunks, verifies their checksums and inflates.
//! Here rows are reconstructed, but only the pixels that the crop depends on: a pixel depends on those to its left and above. So
//! rows below the crop are not inflated, and columns to its right are not reconstructed.
//!
//! Always true: no damage is missed in the chunks that were read. The checksum of the last one is verified too.

use png::{DecodeOptions, Decoded, StreamingDecoder, UnfilterRegion};

use super::png::{check_mask, error};
use super::png_filter::{reconstruct, reconstruct_pair};
use crate::error::CodecError;
use crate::format::Format;
use crate::formats::colour::{self, Layout};
use crate::memory::{grow, with_scratch};
use crate::options::{Mode, Target};
use crate::rect::Rect;

/// Inflated bytes between two calls of `cancel`.
const STRIP_BYTES: usize = 256 << 10;

/// Memory for inflated bytes, of which the decoder needs the last 32 KB.
const BUFFER_BYTES: usize = 128 << 10;

/// Most bytes that one call of the decoder inflates.
const STEP_BYTES: usize = 8 << 10;

/// Longest row, because a few rows are in memory at once, and nobody reserves memory for them.
const MAX_ROW_BYTES: usize = 1 << 20;

/// The layout of a usual file. `None` for other files.
pub(super) fn layout(bytes: &[u8], width: u32) -> Option<Layout> {
    // IHDR is always the first chunk: bits at byte 24, colour at 25, interlace method at 28.
    let header = bytes.get(12..29).filter(|header| header.starts_with(b"IHDR"))?;
    let layout = match (header[12], header[13], header[16]) {
        (8, 0, 0) => Layout::Grey,
        (8, 2, 0) => Layout::Rgb,
        (8, 4, 0) => Layout::GreyAlpha,
        (8, 6, 0) => Layout::Rgba,
        _ => return None,
    };
    (width as usize <= MAX_ROW_BYTES / layout.channels()).then_some(layout)
}

/// Decodes a crop of a file with this layout.
pub(super) fn decode_part(
    bytes: &[u8],
    layout: Layout,
    crop: Rect,
    target: &mut Target<'_, '_>,
) -> Result<(), CodecError> {
    let options = target.options;
    if options.mode == Mode::Mask {
        check_mask(match layout {
            Layout::Grey => png::ColorType::Grayscale,
            Layout::GreyAlpha => png::ColorType::GrayscaleAlpha,
            Layout::Rgb => png::ColorType::Rgb,
            _ => png::ColorType::Rgba,
        })?;
    }
    let channels = layout.channels();
    let stored_bytes = target.width as usize * channels;
    let (start, end) = (crop.left as usize * channels, crop.right() as usize * channels);
    let row_bytes = crop.width as usize * usize::from(options.mode.channels());
    let pairs_per_check = (STRIP_BYTES / 2 / stored_bytes).clamp(1, STRIP_BYTES) as u32;
    let mut pixels = target.pixels(crop.width, crop.height)?.chunks_exact_mut(row_bytes);
    with_scratch(|buffer| {
        let mut inflated = Inflated::new(bytes, buffer);
        let mut memory = Vec::new();
        let (mut above, rows) = grow(&mut memory, 3 * end as u64)?.split_at_mut(end);
        let (first, mut second) = rows.split_at_mut(end);
        // Above the first row lies a row of zeros, which new memory is. Two rows at a time, because that is faster.
        for y in (0..crop.bottom()).step_by(2) {
            if (y / 2).is_multiple_of(pairs_per_check) {
                options.check_cancel()?;
            }
            let is_pair = y + 1 < crop.bottom();
            let filter = inflated.next_row(stored_bytes, first)?;
            let done = if is_pair {
                let filters = [filter, inflated.next_row(stored_bytes, second)?];
                reconstruct_pair(filters, channels, above, [&mut *first, &mut *second])
            } else {
                reconstruct(filter, channels, above, first)
            };
            done.map_err(|filter| {
                CodecError::damaged(Format::Png, format!("filter {filter} in row {y} or the next, of 0 to 4"))
            })?;
            let rows = [(y, &*first), (y + 1, &*second)];
            for (_, row) in rows.into_iter().filter(|&(y, _)| y >= crop.top && y < crop.bottom()) {
                let pixels = pixels.next().expect("there are as many rows as the crop has");
                match options.mode {
                    Mode::Rgb => colour::to_rgb(layout, &row[start..], pixels),
                    _ => colour::to_grey(layout, &row[start..], pixels),
                }
            }
            std::mem::swap(&mut above, &mut second);
        }
        inflated.verify_chunk()
    })
}

/// The inflated rows of a file.
struct Inflated<'b> {
    decoder: StreamingDecoder,
    /// The part of the file that was not read yet.
    rest: &'b [u8],
    buffer: &'b mut Vec<u8>,
    region: UnfilterRegion,
    /// Where in the buffer the next row begins.
    next: usize,
}

impl<'b> Inflated<'b> {
    fn new(bytes: &'b [u8], buffer: &'b mut Vec<u8>) -> Self {
        let mut options = DecodeOptions::default();
        options.set_ignore_text_chunk(true);
        options.set_ignore_iccp_chunk(true);
        let decoder = StreamingDecoder::new_with_options(options);
        Self { decoder, rest: bytes, buffer, region: UnfilterRegion::default(), next: 0 }
    }

    /// Copies the first bytes of the next row, which has `bytes` in all. Returns its filter.
    fn next_row(&mut self, bytes: usize, row: &mut [u8]) -> Result<u8, CodecError> {
        while self.region.filled - self.next <= bytes {
            self.make_room()?;
            let (read, event) =
                self.decoder.update(self.rest, Some(&mut self.region.as_buf(self.buffer))).map_err(error)?;
            self.rest = &self.rest[read..];
            let is_at_end = match event {
                Decoded::ImageDataFlushed | Decoded::ChunkComplete(png::chunk::IEND) => true,
                _ => read == 0 && self.rest.is_empty(),
            };
            if is_at_end && self.region.filled - self.next <= bytes {
                return Err(CodecError::truncated(Format::Png, "rows are missing"));
            }
        }
        let stored = &self.buffer[self.next..=self.next + bytes];
        self.next += stored.len();
        row.copy_from_slice(&stored[1..=row.len()]);
        Ok(stored[0])
    }

    /// Makes room for the next step: drops what is not needed any more, else takes more memory.
    fn make_room(&mut self) -> Result<(), CodecError> {
        let needed = self.region.filled + STEP_BYTES;
        if needed <= self.buffer.len() {
            return Ok(());
        }
        let dropped = self.next.min(self.region.available);
        if dropped >= BUFFER_BYTES / 4 {
            self.buffer.copy_within(dropped..self.region.filled, 0);
            self.next -= dropped;
            self.region.available -= dropped;
            self.region.filled -= dropped;
            return Ok(());
        }
        // The memory grows with the data, not with a stated width.
        grow(self.buffer, needed.max(BUFFER_BYTES).max(self.buffer.len() / 4 * 5) as u64)?;
        Ok(())
    }

    /// Reads the rest of the current chunk without inflating it, which verifies its checksum.
    fn verify_chunk(mut self) -> Result<(), CodecError> {
        loop {
            let (read, event) = self.decoder.update(self.rest, None).map_err(error)?;
            self.rest = &self.rest[read..];
            match event {
                Decoded::ChunkComplete(_) | Decoded::ChunkBegin(..) | Decoded::ImageDataFlushed => return Ok(()),
                _ if self.rest.is_empty() => {
                    return Err(CodecError::truncated(Format::Png, "the last chunk is incomplete"));
                }
                _ => {}
            }
        }
    }
}
