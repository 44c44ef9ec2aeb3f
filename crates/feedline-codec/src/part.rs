//! Decodes a part of a picture.
//!
//! In: a crop, and one of four inputs: a whole file, a whole file whose index is built on the way, the byte range that its index gives
//! for the crop, or a trimmed picture. Out: the pixels of the crop and of some area around it. They equal those of
//! [`crate::decode_into`] at the same place. Only the MCUs of the crop are decoded, or the decoder skips to it and stops below it, or
//! everything is decoded, depending on the input and the format.

use std::cell::OnceCell;

use crate::decode::Picture;
use crate::error::{BadIndex, CodecError};
use crate::format::Format;
use crate::formats;
use crate::header::{Header, Pnm, read_header};
use crate::memory::with_scratch;
use crate::options::{DecodeOptions, Target};
use crate::rect::Rect;
use crate::seek::{FirstPass, JpegPiece, NotSeekable, Piece, ProgressiveCrop, SeekIndex, Trimmed, TrimmedPiece};

/// A picture before it is decoded.
#[derive(Clone, Copy, Debug)]
pub enum Encoded<'a> {
    /// All bytes of a file.
    Whole(&'a [u8]),
    /// All bytes of a file whose index is not known. It is built while the crop is decoded, in the same pass over the data.
    Unindexed {
        /// All bytes of the file.
        bytes: &'a [u8],
        /// Empty. Gets what [`SeekIndex::build`] would return, unless decoding was cancelled.
        index: &'a OnceCell<Result<SeekIndex, NotSeekable>>,
    },
    /// A file with an index.
    Indexed {
        /// The bytes that the index names for the crop, or more.
        bytes: &'a [u8],
        /// Where in the file they begin.
        offset: u64,
        /// Where the parts of the picture are in the file.
        index: &'a SeekIndex,
    },
    /// What a crop needs, as [`SeekIndex::trim`] made it.
    Trimmed(&'a Trimmed<'a>),
}

impl Encoded<'_> {
    /// The header of the whole picture.
    pub fn header(&self) -> Result<Header, CodecError> {
        match self {
            Self::Whole(bytes) | Self::Unindexed { bytes, .. } => read_header(bytes),
            Self::Indexed { index, .. } => Ok(index.header()),
            Self::Trimmed(trimmed) => Ok(trimmed.header()),
        }
    }
}

/// Decodes a part with 8 bits a channel. See [`crate::decode_part_into`].
pub(crate) fn decode_part_into(
    encoded: Encoded<'_>,
    crop: Rect,
    options: &DecodeOptions<'_>,
    picture: &mut Picture,
) -> Result<Rect, CodecError> {
    (picture.width, picture.height, picture.channels) = (0, 0, 0);
    let header = encoded.header()?;
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
    let part = match encoded {
        Encoded::Whole(bytes) => decode_whole(bytes, &header, crop, &mut target)?,
        Encoded::Unindexed { bytes, index } => decode_unindexed(bytes, index, &header, crop, &mut target)?,
        Encoded::Indexed { bytes, offset, index } => {
            let stored = header.stored_rect(crop, options.scale().divisor());
            with_scratch(|memory| match index.piece(stored, bytes, offset, memory)? {
                Piece::Pixels(pixels) => formats::pnm::decode_part(pixels, bytes, offset, crop, &mut target),
                Piece::Jpeg(piece) => decode_piece(&piece, crop, &mut target),
            })?
        }
        Encoded::Trimmed(trimmed) => decode_trimmed(trimmed, &header, crop, &mut target)?,
    };
    picture.turn(options, orientation, part.width, part.height)?;
    Ok(orientation.seen_rect(part, width, height))
}

/// Decodes a crop of the stored picture from a whole file.
fn decode_whole(bytes: &[u8], header: &Header, crop: Rect, target: &mut Target<'_, '_>) -> Result<Rect, CodecError> {
    match header.format {
        Format::Jpeg => formats::jpeg::decode_part(bytes, header, crop, target),
        Format::Png => formats::png::decode_part(bytes, crop, target),
        Format::WebP => formats::webp::decode_part(bytes, crop, target),
        Format::Tiff => formats::tiff::decode_part(bytes, crop, target),
        Format::Pnm => {
            let pixels = Pnm::read(bytes).expect("its header was read");
            formats::pnm::decode_part(&pixels, bytes, 0, crop, target)
        }
        Format::Bmp | Format::Gif => {
            formats::others::decode(bytes, header.format, target)?;
            Ok(Rect::whole(target.width, target.height))
        }
    }
}

/// Decodes a crop of the stored picture from a whole file, and builds the index of the file.
fn decode_unindexed(
    bytes: &[u8],
    index: &OnceCell<Result<SeekIndex, NotSeekable>>,
    header: &Header,
    crop: Rect,
    target: &mut Target<'_, '_>,
) -> Result<Rect, CodecError> {
    // Set only here, where nobody else has the cell.
    let set = |built| index.set(built).expect("the cell of a file without an index is empty");
    if header.format != Format::Jpeg {
        set(SeekIndex::build(bytes));
        return decode_whole(bytes, header, crop, target);
    }
    let scale = target.options.scale().divisor();
    let mut pass = match FirstPass::open(bytes, header.stored_rect(crop, scale)) {
        Ok(pass) => pass,
        Err(reason) => {
            set(Err(reason));
            return decode_whole(bytes, header, crop, target);
        }
    };
    let decoded = formats::jpeg::decode_mcus(pass.rect(), &pass.header(), &mut pass, crop, target);
    if let Err(CodecError::Cancelled) = decoded {
        return decoded;
    }
    let built = pass.finish(header);
    let is_complete = built.is_ok();
    set(built);
    match decoded {
        Ok(part) if is_complete => Ok(part),
        Err(error) if !error.is_about_data() => Err(error),
        // In a file without an index libjpeg decides what counts as damage.
        _ => decode_whole(bytes, header, crop, target),
    }
}

/// Decodes a crop of a stored picture of which only a part is present.
fn decode_trimmed(
    trimmed: &Trimmed<'_>,
    header: &Header,
    crop: Rect,
    target: &mut Target<'_, '_>,
) -> Result<Rect, CodecError> {
    let scale = target.options.scale();
    match trimmed.piece(header.stored_rect(crop, scale.divisor()), scale)? {
        TrimmedPiece::Jpeg(piece) => decode_piece(&piece, crop, target),
        TrimmedPiece::Pixels(around, pixels, rows) => {
            let (width, height) = (around.width, around.height);
            let mut target = Target { width, height, options: target.options, pixels: target.pixels };
            let part =
                formats::pnm::decode_part(&pixels, rows, 0, crop.seen_from(around.left, around.top), &mut target)?;
            Ok(Rect { left: part.left + around.left, top: part.top + around.top, ..part })
        }
    }
}

/// Decodes a crop of the stored picture from a piece of it.
fn decode_piece(piece: &JpegPiece<'_>, crop: Rect, target: &mut Target<'_, '_>) -> Result<Rect, CodecError> {
    formats::jpeg::decode_mcus(piece.rect, &piece.header(), &mut piece.mcus(), crop, target)
}

impl SeekIndex {
    /// The bytes of the file that [`crate::decode_part_into`] needs for a crop with these options.
    pub fn bytes_for(&self, crop: Rect, options: &DecodeOptions<'_>) -> Result<std::ops::Range<u64>, CodecError> {
        Ok(self.bytes_around(stored(&self.header(), crop, options)?)?)
    }

    /// The data that [`crate::decode_part_into`] needs for a crop with these options, as the bytes of a [`Trimmed`] picture. `bytes` begin at
    /// `offset` of the file and contain the range of [`SeekIndex::bytes_for`]. If the options have a smaller scale, the result can
    /// be decoded only at that scale or a smaller one. The result may be longer than the file.
    pub fn trim(
        &self,
        crop: Rect,
        options: &DecodeOptions<'_>,
        bytes: &[u8],
        offset: u64,
    ) -> Result<Vec<u8>, CodecError> {
        options.check_header(&self.header())?;
        let stored = stored(&self.header(), crop, options)?;
        with_scratch(|memory| Ok(self.trim_stored(stored, options.scale(), bytes, offset, memory)?))
    }
}

/// The data that [`crate::decode_part_into`] needs for a crop of a progressive JPEG, as the bytes of a [`Trimmed`] picture. All scans are
/// read, and the coefficients of the crop are encoded again, in one scan. `None` for files of other kinds, and for those whose damage
/// the decoder has to judge.
pub fn trim_progressive(file: &[u8], crop: Rect, options: &DecodeOptions<'_>) -> Result<Option<Vec<u8>>, CodecError> {
    let header = read_header(file)?;
    options.check_header(&header)?;
    if header.format != Format::Jpeg || !header.needs_whole {
        return Ok(None);
    }
    let stored = stored(&header, crop, options)?;
    let read = ProgressiveCrop::read(file, stored, &|| options.check_cancel())?;
    Ok(read.and_then(|read| read.trim(header.orientation, options.scale()).ok()))
}

/// The stored pixels that a crop depends on.
fn stored(header: &Header, crop: Rect, options: &DecodeOptions<'_>) -> Result<Rect, BadIndex> {
    let orientation = options.orientation(header);
    let (width, height) = header.size_at(options.scale());
    let (seen_width, seen_height) = orientation.seen_size(width, height);
    if !crop.is_inside(seen_width, seen_height) {
        return Err(BadIndex::of_crop());
    }
    let crop = orientation.inverse().seen_rect(crop, seen_width, seen_height);
    Ok(header.stored_rect(crop, options.scale().divisor()))
}
