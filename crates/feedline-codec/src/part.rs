//! From the bytes of a file to the pixels of a part of it.
//!
//! In: a crop, and a file, or the bytes that its index names. Out: the crop and what came with it. The pixels are those of
//! [`crate::decode_into`] at the same place, whichever way they were made: from its MCUs alone by the index,
//! by libjpeg's own skipping, or by decoding everything.

use crate::decode::{DecodeOptions, Picture, Target, with_scratch};
use crate::error::CodecError;
use crate::formats;
use crate::formats::pnm::Pnm;
use crate::header::{Format, read_header};
use crate::rect::Rect;
use crate::seek::{Piece, SeekIndex};

/// The bytes of a file.
#[derive(Clone, Copy, Debug)]
pub struct Encoded<'a> {
    /// All of them or, with an index, those that it names for the crop.
    pub bytes: &'a [u8],
    /// Where in the file they begin.
    pub offset: u64,
    /// Where the parts of the picture are in the file.
    pub index: Option<&'a SeekIndex>,
}

impl<'a> Encoded<'a> {
    /// A file without an index.
    pub fn whole(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0, index: None }
    }
}

/// Decodes at least `crop` into `picture`, and says which part of the whole picture that is. Crop and part are rectangles
/// of the picture as [`crate::decode_into`] would give it with these options.
pub fn decode_part_into(
    encoded: Encoded<'_>,
    crop: Rect,
    options: &DecodeOptions<'_>,
    picture: &mut Picture,
) -> Result<Rect, CodecError> {
    (picture.width, picture.height, picture.channels) = (0, 0, 0);
    let header = match encoded.index {
        Some(index) => index.header(),
        None => read_header(encoded.bytes)?,
    };
    options.check_header(&header)?;
    let (width, height) = header.size_at(options.scale());
    let orientation = options.orientation(&header);
    let (seen_width, seen_height) = orientation.seen_size(width, height);
    assert!(
        crop.is_inside(seen_width, seen_height),
        "{crop:?} is not inside a picture of {seen_width} x {seen_height}"
    );
    let crop = orientation.inverse().seen_rect(crop, seen_width, seen_height);

    let mut target = Target { width, height, options, pixels: &mut picture.pixels };
    let part = match (encoded.index, header.format) {
        (Some(index), _) => decode_piece(encoded, index, crop, &mut target)?,
        (None, Format::Jpeg) => formats::jpeg::decode_part(encoded.bytes, crop, &mut target)?,
        (None, Format::Pnm) => {
            let pixels = Pnm::read(encoded.bytes).expect("its header was read");
            pixels.decode_part(encoded.bytes, 0, crop, &mut target)?
        }
        (None, _) => {
            crate::decode_into(encoded.bytes, options, picture)?;
            return Ok(Rect::whole(seen_width, seen_height));
        }
    };
    picture.turn(options, orientation, part.width, part.height)?;
    Ok(orientation.seen_rect(part, width, height))
}

/// Decodes a crop of the stored picture by an index.
fn decode_piece(
    encoded: Encoded<'_>,
    index: &SeekIndex,
    crop: Rect,
    target: &mut Target<'_, '_>,
) -> Result<Rect, CodecError> {
    let options = target.options;
    let divisor = options.scale().divisor();
    let stored = index.header().stored_rect(crop, divisor);
    with_scratch(|memory| match index.piece(stored, encoded.bytes, encoded.offset, memory)? {
        Piece::Pixels(pixels) => pixels.decode_part(encoded.bytes, encoded.offset, crop, target),
        Piece::Jpeg(piece) => {
            let around = piece.rect;
            // A cut begins at an MCU, which has whole pixels at every scale.
            let (left, top) = (around.left / divisor, around.top / divisor);
            let (width, height) = (around.width.div_ceil(divisor), around.height.div_ceil(divisor));
            let mut target = Target { width, height, options, pixels: target.pixels };
            let inside = Rect { left: crop.left - left, top: crop.top - top, ..crop };
            let part = formats::jpeg::decode_piece(&piece, inside, &mut target)?;
            Ok(Rect { left: part.left + left, top: part.top + top, ..part })
        }
    })
}

impl SeekIndex {
    /// The bytes of the file that [`decode_part_into`] needs for a crop with these options.
    pub fn bytes_for(&self, crop: Rect, options: &DecodeOptions<'_>) -> Result<std::ops::Range<u64>, CodecError> {
        let header = self.header();
        let (width, height) = header.size_at(options.scale());
        let orientation = options.orientation(&header);
        let (seen_width, seen_height) = orientation.seen_size(width, height);
        let crop = orientation.inverse().seen_rect(crop, seen_width, seen_height);
        Ok(self.bytes_around(header.stored_rect(crop, options.scale().divisor()))?)
    }
}
