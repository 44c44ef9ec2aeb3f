//! TIFF: strips and tiles of grey, RGB and palette pixels.
//!
//! In: the bytes of a file, and a crop. Out: exactly the crop. Only the strips and tiles that the crop touches are read, each down
//! to the last row of the crop. Rows are read one by one, so the size of a tile costs no memory. Samples of 16 bits lose their low
//! byte, and samples beside the colour, such as alpha, are dropped.

use super::tiff_rows::Rows;
use crate::error::CodecError;
use crate::format::Format;
use crate::formats::colour::{self, Layout};
use crate::formats::deep_pixels;
use crate::header::{Tiff, TiffColour};
use crate::memory::{grow, with_scratch};
use crate::options::{Mode, Target};
use crate::rect::Rect;

/// Bytes of output between two calls of `cancel`.
const STRIP_BYTES: usize = 256 << 10;

/// Decodes a whole file.
pub(crate) fn decode(bytes: &[u8], target: &mut Target<'_, '_>) -> Result<(), CodecError> {
    decode_part(bytes, Rect::whole(target.width, target.height), target)?;
    Ok(())
}

/// Decodes a crop of a file. Returns the crop.
pub(crate) fn decode_part(bytes: &[u8], crop: Rect, target: &mut Target<'_, '_>) -> Result<Rect, CodecError> {
    let tiff = Tiff::read(bytes)?;
    target.check_size(Format::Tiff, tiff.width, tiff.height)?;
    let options = target.options;
    check_mask(&tiff, options.mode)?;
    let palette = if tiff.colour == TiffColour::Palette && options.mode != Mode::Mask {
        Some(tiff.palette(bytes)?)
    } else {
        None
    };
    let pixels = target.pixels(crop.width, crop.height)?;
    let decoder = Decoder { tiff, bytes, crop, palette, is_cancelled: options.cancel };
    // Planes of colours are joined before they become grey.
    if tiff.is_planar && tiff.colour == TiffColour::Rgb && options.mode == Mode::Grey16 {
        with_scratch(|scratch| {
            let colours = grow(scratch, pixels.len() as u64 * 3)?;
            decoder.decode(Mode::Rgb16, colours)?;
            let colours = colours.as_chunks::<2>().0;
            deep_pixels::write(3, true, Mode::Grey16, |at| u16::from_ne_bytes(colours[at]), pixels);
            Ok::<(), CodecError>(())
        })?;
    } else if tiff.is_planar && tiff.colour == TiffColour::Rgb && options.mode == Mode::Grey {
        with_scratch(|scratch| {
            let colours = grow(scratch, pixels.len() as u64 * 3)?;
            decoder.decode(Mode::Rgb, colours)?;
            colour::to_grey(Layout::Rgb, colours, pixels);
            Ok::<(), CodecError>(())
        })?;
    } else {
        decoder.decode(options.mode, pixels)?;
    }
    Ok(crop)
}

fn check_mask(tiff: &Tiff, mode: Mode) -> Result<(), CodecError> {
    match tiff.colour {
        _ if mode != Mode::Mask => Ok(()),
        TiffColour::Rgb => Err(CodecError::NotAMask { format: Format::Tiff, found: "RGB colour" }),
        TiffColour::Grey { .. } | TiffColour::Palette if tiff.bits > 8 => {
            Err(CodecError::unsupported(Format::Tiff, "a mask of 16 bits"))
        }
        TiffColour::Grey { .. } | TiffColour::Palette => Ok(()),
    }
}

/// Work memory.
#[derive(Default)]
struct Scratch {
    /// A row of a tile.
    row: Vec<u8>,
    /// Its samples with 8 bits each.
    samples: Vec<u8>,
}

/// Decodes a crop of one file.
struct Decoder<'a> {
    tiff: Tiff,
    bytes: &'a [u8],
    crop: Rect,
    palette: Option<[[u8; 3]; 256]>,
    is_cancelled: &'a dyn Fn() -> bool,
}

impl Decoder<'_> {
    /// Writes the crop into `pixels`.
    fn decode(&self, mode: Mode, pixels: &mut [u8]) -> Result<(), CodecError> {
        let Self { tiff, crop, .. } = self;
        let (tile_width, tile_height) = tiff.tile;
        let (across, down) = (tiff.width.div_ceil(tile_width), tiff.height.div_ceil(tile_height));
        let (columns, rows) = (
            crop.left / tile_width..crop.right().div_ceil(tile_width),
            crop.top / tile_height..crop.bottom().div_ceil(tile_height),
        );
        let planes = match (tiff.is_planar, tiff.colour) {
            (true, TiffColour::Rgb) => 3_u32,
            // Grey is the first plane.
            _ => 1,
        };
        let mut scratch = Scratch::default();
        for plane in 0..planes {
            for row in rows.clone() {
                for column in columns.clone() {
                    // Sides are from the file, so their product may be too large for any list of tiles.
                    let number = u64::from(plane) * u64::from(across) * u64::from(down)
                        + u64::from(row) * u64::from(across)
                        + u64::from(column);
                    let number = u32::try_from(number)
                        .map_err(|_| CodecError::damaged(Format::Tiff, "there are more than 2^32 tiles"))?;
                    let plane = (planes > 1).then_some(plane as usize);
                    self.decode_tile(
                        number,
                        (column * tile_width, row * tile_height),
                        plane,
                        mode,
                        &mut scratch,
                        pixels,
                    )?;
                }
            }
        }
        Ok(())
    }

    /// Writes the part of the crop that lies in a tile at (`left`, `top`).
    fn decode_tile(
        &self,
        number: u32,
        (left, top): (u32, u32),
        plane: Option<usize>,
        mode: Mode,
        scratch: &mut Scratch,
        pixels: &mut [u8],
    ) -> Result<(), CodecError> {
        let Self { tiff, crop, .. } = self;
        let pixel_bytes = usize::from(mode.pixel_bytes());
        let stored = &self.bytes[tiff.tile_bytes(self.bytes, number)?];
        let samples = if tiff.is_planar { 1 } else { tiff.samples as usize };
        let row_bits = u64::from(tiff.tile.0) * samples as u64 * u64::from(tiff.bits);
        // Columns and rows of the tile that are part of the crop.
        let columns = crop.left.max(left) - left..crop.right().min(left.saturating_add(tiff.tile.0)) - left;
        let rows = crop.top.max(top) - top..crop.bottom().min(top.saturating_add(tiff.tile.1)) - top;
        let mut reader = Rows::new(tiff.compression, stored)?;
        let rows_per_check = (STRIP_BYTES as u64 / row_bits.div_ceil(8).max(1)).max(1) as u32;
        let row = grow(&mut scratch.row, row_bits.div_ceil(8))?;
        let samples_of = grow(&mut scratch.samples, u64::from(columns.end - columns.start) * samples as u64)?;
        for y in 0..rows.end {
            if y.is_multiple_of(rows_per_check) && (self.is_cancelled)() {
                return Err(CodecError::Cancelled);
            }
            reader.next_row(row, y < rows.start)?;
            if y < rows.start {
                continue;
            }
            let width = columns.end as usize * samples;
            if tiff.has_differences {
                add_differences(row, width, samples, tiff);
            }
            let start =
                (top + y - crop.top) as usize * crop.width as usize + (left + columns.start - crop.left) as usize;
            let target = &mut pixels[start * pixel_bytes..][..(columns.end - columns.start) as usize * pixel_bytes];
            if mode.is_deep() {
                let stored = &row.as_chunks::<2>().0[columns.start as usize * samples..];
                let value = |at: usize| tiff.sample(stored[at]);
                if let Some(plane) = plane {
                    for (number, pixel) in target.chunks_exact_mut(pixel_bytes).enumerate() {
                        pixel[2 * plane..2 * plane + 2].copy_from_slice(&value(number).to_ne_bytes());
                    }
                } else {
                    deep_pixels::write(samples, tiff.colour == TiffColour::Rgb, mode, value, target);
                }
                continue;
            }
            if let Some(plane) = plane {
                eight_bits(row, columns.start as usize..columns.end as usize, tiff, samples_of);
                for (pixel, &value) in target.chunks_exact_mut(pixel_bytes).zip(&*samples_of) {
                    pixel[plane] = value;
                }
                continue;
            }
            let places = columns.start as usize * samples..columns.end as usize * samples;
            let is_plain =
                tiff.bits == 8 && self.palette.is_none() && tiff.colour != TiffColour::Grey { is_inverted: true };
            let found = if is_plain {
                &row[places]
            } else {
                eight_bits(row, places, tiff, samples_of);
                &*samples_of
            };
            self.write(found, samples, mode, target);
        }
        Ok(())
    }

    /// Writes samples of 8 bits as pixels.
    fn write(&self, found: &[u8], samples: usize, mode: Mode, target: &mut [u8]) {
        match (&self.palette, self.tiff.colour) {
            (Some(palette), _) => {
                let colours = found.chunks_exact(samples).map(|pixel| palette[usize::from(pixel[0])]);
                if mode == Mode::Rgb {
                    target.as_chunks_mut().0.iter_mut().zip(colours).for_each(|(pixel, colour)| *pixel = colour);
                } else {
                    for (pixel, rgb) in target.chunks_exact_mut(1).zip(colours) {
                        colour::to_grey(Layout::Rgb, &rgb, pixel);
                    }
                }
            }
            (None, colour) => {
                let (layout, kept) = match (colour, samples) {
                    (TiffColour::Rgb, 4) => (Layout::Rgba, 4),
                    (TiffColour::Rgb, _) => (Layout::Rgb, 3),
                    (_, 2) => (Layout::GreyAlpha, 2),
                    _ => (Layout::Grey, 1),
                };
                let convert = |source: &[u8], target: &mut [u8]| match mode {
                    Mode::Rgb => colour::to_rgb(layout, source, target),
                    _ => colour::to_grey(layout, source, target),
                };
                if kept == samples {
                    convert(found, target);
                } else {
                    let pixels = target.chunks_exact_mut(usize::from(mode.channels()));
                    pixels.zip(found.chunks_exact(samples)).for_each(|(target, pixel)| convert(&pixel[..kept], target));
                }
            }
        }
    }
}

impl Tiff {
    /// A sample of 16 bits.
    fn sample(&self, bytes: [u8; 2]) -> u16 {
        let value = if self.is_little_endian { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) };
        if self.colour == (TiffColour::Grey { is_inverted: true }) { !value } else { value }
    }
}

/// Undoes the predictor for the first samples of a row: each sample is stored as the difference from that of the pixel before.
fn add_differences(row: &mut [u8], width: usize, samples: usize, tiff: &Tiff) {
    if tiff.bits == 8 {
        for at in samples..width.min(row.len()) {
            row[at] = row[at].wrapping_add(row[at - samples]);
        }
        return;
    }
    let row = row.as_chunks_mut::<2>().0;
    for at in samples..width.min(row.len()) {
        let (difference, before) = (row[at], row[at - samples]);
        row[at] = if tiff.is_little_endian {
            u16::from_le_bytes(difference).wrapping_add(u16::from_le_bytes(before)).to_le_bytes()
        } else {
            u16::from_be_bytes(difference).wrapping_add(u16::from_be_bytes(before)).to_be_bytes()
        };
    }
}

/// Writes some samples of a row with 8 bits each. Grey of fewer bits is stretched, and indices stay.
fn eight_bits(row: &[u8], places: std::ops::Range<usize>, tiff: &Tiff, target: &mut [u8]) {
    match tiff.bits {
        8 => target.copy_from_slice(&row[places]),
        16 => {
            let high = usize::from(tiff.is_little_endian);
            let samples = &row.as_chunks::<2>().0[places];
            target.iter_mut().zip(samples).for_each(|(value, sample)| *value = sample[high]);
        }
        bits => {
            let (bits, most) = (bits as usize, (1_u8 << bits) - 1);
            // The largest value becomes 255.
            let stretch = if tiff.colour == TiffColour::Palette { 1 } else { 255 / most };
            for (value, place) in target.iter_mut().zip(places) {
                let shift = 8 - bits - place * bits % 8;
                *value = (row[place * bits / 8] >> shift & most) * stretch;
            }
        }
    }
    if tiff.colour == (TiffColour::Grey { is_inverted: true }) {
        for value in target {
            *value = !*value;
        }
    }
}
