//! Extracts the data of a crop from a file.
//!
//! In: an index, a crop of the stored picture, and the bytes of the file that contain the crop. Out: the bytes of a
//! [`Trimmed`](super::Trimmed) picture. For stored pixels they are those of the crop. For a JPEG at full size they are the bits of
//! the MCUs (the units in which a JPEG stores its blocks) around the crop, unchanged. For a JPEG at a smaller scale they are only
//! the coefficients that this scale needs, re-encoded.

use std::borrow::Cow;

use super::coefficients::Order;
use super::index::{IndexKind, SeekIndex};
use super::recode::Recoded;
use super::scan::Scan;
use super::trimmed::{TrimmedJpeg, pack_pixels};
use crate::error::BadIndex;
use crate::header::Pnm;
use crate::rect::Rect;
use crate::scale::Scale;

impl SeekIndex {
    /// Extracts the data of a crop of the stored picture at a scale. `bytes` begin at `offset` of the file.
    pub(crate) fn trim_stored(
        &self,
        crop: Rect,
        scale: Scale,
        bytes: &[u8],
        offset: u64,
        memory: &mut Vec<u8>,
    ) -> Result<Vec<u8>, BadIndex> {
        let index = match &self.0 {
            IndexKind::Jpeg(index) => index,
            IndexKind::Pixels(pixels) => return trim_pixels(pixels, crop, bytes, offset),
        };
        let extent = index.extent_around(crop)?;
        let scan = Scan::gather_exact(index, &extent, bytes, offset, memory)?;
        let orientation = index.header().orientation;
        if scale == Scale::Full {
            return Ok(TrimmedJpeg { frame: Cow::Borrowed(&index.frame), orientation, extent, scan }.to_bytes());
        }
        // A picture of 1/n of the size needs only the lowest 8/n x 8/n frequencies of each block.
        let order = Order::by_side((8 / scale.divisor()) as u8).expect("there is an order for each scale");
        let recoded = Recoded::of(&index.frame, &scan, order)?;
        let scan = recoded.scan();
        Ok(TrimmedJpeg { frame: Cow::Borrowed(&recoded.frame), orientation, extent, scan }.to_bytes())
    }
}

fn trim_pixels(pixels: &Pnm, crop: Rect, bytes: &[u8], offset: u64) -> Result<Vec<u8>, BadIndex> {
    let range = pixels.rows(crop).ok_or_else(BadIndex::of_crop)?;
    let inside = range.start.checked_sub(offset).zip(range.end.checked_sub(offset));
    let rows = inside.and_then(|(start, end)| bytes.get(start as usize..end as usize));
    let rows = rows.ok_or(BadIndex("the rows lie outside the bytes given"))?;
    let columns = pixels.columns(crop);
    let rows = rows.chunks_exact(rows.len() / crop.height as usize).map(|row| &row[columns.clone()]);
    Ok(pack_pixels(pixels, crop, rows))
}
