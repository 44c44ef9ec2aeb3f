//! PPM (P6) and PGM (P5): raw pixels.
//!
//! In: the bytes of a file, or of some of its rows. Out: rows.

use crate::error::CodecError;
use crate::format::Format;
use crate::formats::colour::{self, Layout};
use crate::header::Pnm;
use crate::options::{Mode, Target};
use crate::rect::Rect;

/// Decodes a whole file.
pub(crate) fn decode(bytes: &[u8], target: &mut Target<'_, '_>) -> Result<(), CodecError> {
    let pixels = Pnm::read(bytes).ok_or_else(|| CodecError::damaged(Format::Pnm, "the header is not valid"))?;
    decode_part(&pixels, bytes, 0, Rect::whole(target.width, target.height), target)?;
    Ok(())
}

/// Decodes the rows of a crop from bytes that begin at `offset` of the file. Returns the part.
pub(crate) fn decode_part(
    pnm: &Pnm,
    bytes: &[u8],
    offset: u64,
    crop: Rect,
    target: &mut Target<'_, '_>,
) -> Result<Rect, CodecError> {
    let mode = target.options.mode;
    target.check_size(Format::Pnm, pnm.width, pnm.height)?;
    if mode == Mode::Mask && pnm.channels != 1 {
        return Err(CodecError::NotAMask { format: Format::Pnm, found: "RGB colour" });
    }
    let range = pnm.rows(crop).expect("a crop lies inside its picture");
    // The bytes may be a part of the file, from `offset` on. `None` if the rows begin before it.
    let inside = range.start.checked_sub(offset).zip(range.end.checked_sub(offset));
    let stored = inside.and_then(|(start, end)| bytes.get(start as usize..end as usize)).ok_or_else(|| {
        let has = offset + bytes.len() as u64;
        CodecError::truncated(Format::Pnm, format!("the rows end at byte {}, the file at {has}", range.end))
    })?;
    let pixels = target.pixels(pnm.width, crop.height)?;
    match (pnm.channels, mode) {
        (3, Mode::Rgb) | (1, Mode::Grey | Mode::Mask) => pixels.copy_from_slice(stored),
        (_, Mode::Rgb) => colour::to_rgb(Layout::Grey, stored, pixels),
        (_, _) => colour::to_grey(Layout::Rgb, stored, pixels),
    }
    Ok(Rect { left: 0, width: pnm.width, ..crop })
}
