//! Decodes with 8 or 16 bits a channel, as the mode says.
//!
//! In: a file and options. Out: pixels; those of 16 bits are in native byte order. PNG and TIFF of 16 bits keep all of them. All other
//! files are decoded with 8 bits, and each value is stretched: 255 becomes 65535. So the decoders of 8 bits never see a mode of 16.

use crate::decode::{self, Picture};
use crate::error::CodecError;
use crate::format::Format;
use crate::formats;
use crate::header::{Header, Tiff, read_header};
use crate::memory::grow;
use crate::options::{DecodeOptions, Target};
use crate::part::{self, Encoded};
use crate::rect::Rect;
use crate::seek::SeekIndex;

/// Decodes into `picture.pixels` and reuses its memory. Nothing is allocated if it is long enough, and memory that will be
/// overwritten is not zeroed. After an error the picture is empty.
pub fn decode_into(bytes: &[u8], options: &DecodeOptions<'_>, picture: &mut Picture) -> Result<(), CodecError> {
    if !options.mode.is_deep() {
        return decode::decode_into(bytes, options, picture);
    }
    (picture.width, picture.height, picture.channels) = (0, 0, 0);
    let header = read_header(bytes)?;
    if is_stored_deep(bytes, &header)? {
        let (width, height) = options.orientation(&header).seen_size(header.width, header.height);
        decode_deep(bytes, &header, Rect::whole(width, height), options, picture)
    } else {
        decode::decode_into(bytes, &of_8_bits(options), picture)?;
        stretch(picture)
    }
}

/// Decodes at least `crop` into `picture`. Returns the decoded part of the whole picture. Crop and part are rectangles of the picture
/// that [`decode_into`] would return with these options.
pub fn decode_part_into(
    encoded: Encoded<'_>,
    crop: Rect,
    options: &DecodeOptions<'_>,
    picture: &mut Picture,
) -> Result<Rect, CodecError> {
    if !options.mode.is_deep() {
        return part::decode_part_into(encoded, crop, options, picture);
    }
    (picture.width, picture.height, picture.channels) = (0, 0, 0);
    if let Encoded::Whole(bytes) | Encoded::Unindexed { bytes, .. } = encoded {
        let header = read_header(bytes)?;
        if is_stored_deep(bytes, &header)? {
            decode_deep(bytes, &header, crop, options, picture)?;
            if let Encoded::Unindexed { index, .. } = encoded {
                // No format with 16 bits has an index. The reason is kept, so that nobody tries again.
                index.set(SeekIndex::build(bytes)).expect("the cell of a file without an index is empty");
            }
            return Ok(crop);
        }
    }
    let found = part::decode_part_into(encoded, crop, &of_8_bits(options), picture)?;
    stretch(picture)?;
    Ok(found)
}

fn of_8_bits<'a>(options: &DecodeOptions<'a>) -> DecodeOptions<'a> {
    DecodeOptions { mode: options.mode.of_8_bits(), ..*options }
}

/// Decodes exactly a crop of a file that stores 16 bits.
fn decode_deep(
    bytes: &[u8],
    header: &Header,
    crop: Rect,
    options: &DecodeOptions<'_>,
    picture: &mut Picture,
) -> Result<(), CodecError> {
    options.check_header(header)?;
    let Header { width, height, .. } = *header;
    let orientation = options.orientation(header);
    let (seen_width, seen_height) = orientation.seen_size(width, height);
    assert!(
        crop.is_inside(seen_width, seen_height),
        "{crop:?} is not inside a picture of {seen_width} x {seen_height}"
    );
    let stored = orientation.inverse().seen_rect(crop, seen_width, seen_height);
    let mut target = Target { width, height, options, pixels: &mut picture.pixels };
    match header.format {
        Format::Png => formats::png::decode_deep(bytes, stored, &mut target)?,
        _ => formats::tiff::decode_part(bytes, stored, &mut target).map(|_| ())?,
    }
    picture.turn(options, orientation, stored.width, stored.height)
}

/// Whether a file stores more than 8 bits a channel.
fn is_stored_deep(bytes: &[u8], header: &Header) -> Result<bool, CodecError> {
    Ok(match header.format {
        // IHDR is always the first chunk, with the bits at byte 24.
        Format::Png => bytes.get(24) == Some(&16),
        Format::Tiff => Tiff::read(bytes)?.bits == 16,
        _ => false,
    })
}

/// Makes 16 bits of 8. A byte becomes two equal ones, in any byte order.
fn stretch(picture: &mut Picture) -> Result<(), CodecError> {
    let len = picture.len();
    let pixels = grow(&mut picture.pixels, 2 * len as u64)?;
    // From the end: a value of two bytes would overwrite values of one byte that were not read yet.
    for at in (0..len).rev() {
        let value = pixels[at];
        pixels[2 * at..2 * at + 2].fill(value);
    }
    picture.channels *= 2;
    Ok(())
}
