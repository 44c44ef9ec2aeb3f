//! A trimmed picture: the part of a file that a crop needs, complete in itself.
//!
//! In: bytes that [`SeekIndex::trim`](super::SeekIndex::trim) wrote, from a sender that may be hostile. Out: the header of the
//! whole picture, and the piece that contains a crop. Always true: a crop that is not there is an error, never other pixels. Memory
//! is bounded by the bytes given.
//!
//! The layout, with numbers of variable length:
//!
//! - version, kind
//! - for a JPEG: orientation; rows and columns of a block that have coefficients (8: all); header; the columns and rows of MCUs that
//!   are present; a table; the data
//! - for plain pixels: header, rectangle, rows
//! - checksum
//!
//! The table has an entry for each row of MCUs: the DC predictors minus those of the row before, then for each segment between
//! restarts its number of bits. Without restarts the entry also has a sum of the predictors after the segment. If coefficients were
//! left out, the data is one segment that starts with predictors of zero, and the table contains only its bits. Segments follow each
//! other without gaps.

use std::borrow::Cow;
use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use super::bits::BitWriter;
use super::coefficients::Order;
use super::cut::Extent;
use super::frame::JpegFrame;
use super::index::JpegPiece;
use super::packed::{PackedReader, put_number, put_signed};
use super::scan::{McuRun, Scan, until_restart};
use super::walk::COMPONENTS;
use crate::error::BadTrimmed;
use crate::format::Format;
use crate::header::{Header, Pnm};
use crate::orientation::Orientation;
use crate::rect::Rect;
use crate::scale::Scale;

/// The version of the format.
const VERSION: u8 = 1;
const JPEG: u8 = b'J';
const PIXELS: u8 = b'P';

/// A picture of which only a part is present.
#[derive(Clone, Debug)]
pub struct Trimmed<'a>(TrimmedKind<'a>);

#[derive(Clone, Debug)]
enum TrimmedKind<'a> {
    Jpeg(Box<TrimmedJpeg<'a>>),
    Pixels { whole: Pnm, rect: Rect, rows: &'a [u8] },
}

/// MCUs of a JPEG.
#[derive(Clone, Debug)]
pub(super) struct TrimmedJpeg<'a> {
    /// The frame of the whole picture, with the codes of the data.
    pub frame: Cow<'a, JpegFrame>,
    pub orientation: Orientation,
    pub extent: Extent,
    pub scan: Scan<'a>,
}

/// The data of a trimmed picture that a crop needs.
pub(crate) enum TrimmedPiece<'a> {
    /// MCUs around it.
    Jpeg(JpegPiece<'a>),
    /// The rectangle of plain pixels that is there, its header, and its bytes.
    Pixels(Rect, Pnm, &'a [u8]),
}

impl<'a> Trimmed<'a> {
    /// Reads a trimmed picture. The checksum detects damage.
    pub fn read(bytes: &'a [u8]) -> Result<Self, BadTrimmed> {
        let (content, checksum) = bytes.split_last_chunk().ok_or(BadTrimmed("it is truncated"))?;
        if xxh3_64(content) != u64::from_le_bytes(*checksum) {
            return Err(BadTrimmed("its checksum differs"));
        }
        let mut reader = PackedReader::new(content);
        let kind = match reader.array() {
            Some([VERSION, JPEG]) => TrimmedJpeg::unpack(reader).map(|jpeg| TrimmedKind::Jpeg(jpeg.into())),
            Some([VERSION, PIXELS]) => unpack_pixels(reader),
            Some(_) => return Err(BadTrimmed("it was made by another version")),
            None => None,
        };
        kind.map(Self).ok_or(BadTrimmed("its content contradicts itself"))
    }

    /// The header of the whole picture.
    pub fn header(&self) -> Header {
        match &self.0 {
            TrimmedKind::Jpeg(jpeg) => {
                let JpegFrame { width, height, .. } = *jpeg.frame;
                Header { format: Format::Jpeg, width, height, orientation: jpeg.orientation, needs_whole: false }
            }
            TrimmedKind::Pixels { whole, .. } => whole.header(),
        }
    }

    /// The bytes of a forged content with a valid checksum, as an attacker would write them.
    #[doc(hidden)]
    pub fn forged(content: &[u8]) -> Vec<u8> {
        finished(content.to_vec())
    }

    /// The piece that contains a crop of the stored picture, decoded at a scale.
    pub(crate) fn piece(&self, crop: Rect, scale: Scale) -> Result<TrimmedPiece<'_>, BadTrimmed> {
        let missing = BadTrimmed("a part of the crop is not in it");
        match &self.0 {
            TrimmedKind::Jpeg(jpeg) => {
                // At scale 1/n a decoder needs 8/n rows and columns of coefficients.
                if u32::from(jpeg.scan.order.side) * scale.divisor() < 8 {
                    return Err(BadTrimmed("coefficients for pictures of this scale are not in it"));
                }
                let around = jpeg.frame.extent_around(crop).ok_or(missing)?;
                if !jpeg.extent.contains(&around) {
                    return Err(missing);
                }
                let (rect, frame) = (jpeg.frame.rect_of(&jpeg.extent), jpeg.frame.as_ref());
                let Scan { bytes, segments, order } = &jpeg.scan;
                let scan = Scan { bytes, segments: Cow::Borrowed(segments), order };
                Ok(TrimmedPiece::Jpeg(JpegPiece { rect, frame, scan }))
            }
            TrimmedKind::Pixels { whole, rect, rows } => {
                let part = whole.part(*rect).filter(|_| rect.contains(&crop)).ok_or(missing)?;
                Ok(TrimmedPiece::Pixels(*rect, part, rows))
            }
        }
    }
}

/// The bytes of a rectangle of plain pixels, whose rows are given.
pub(super) fn pack_pixels<'r>(whole: &Pnm, rect: Rect, rows: impl Iterator<Item = &'r [u8]>) -> Vec<u8> {
    let mut out = vec![VERSION, PIXELS];
    whole.pack(&mut out);
    for number in [rect.left, rect.top, rect.width, rect.height] {
        put_number(&mut out, number.into());
    }
    rows.for_each(|row| out.extend_from_slice(row));
    finished(out)
}

fn unpack_pixels(mut reader: PackedReader<'_>) -> Option<TrimmedKind<'_>> {
    let whole = Pnm::unpack(reader.bytes(Pnm::PACKED_BYTES)?)?;
    let mut number = || u32::try_from(reader.number()?).ok();
    let (left, top, width, height) = (number()?, number()?, number()?, number()?);
    let rect = Rect { left, top, width, height };
    let len = whole.part(rect)?.rows(Rect::whole(width, height))?.end;
    let rows = reader.rest();
    (rows.len() as u64 == len).then_some(TrimmedKind::Pixels { whole, rect, rows })
}

impl<'a> TrimmedJpeg<'a> {
    /// Writes it as bytes.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Scan { bytes, segments, order } = &self.scan;
        let data_bits: usize = segments.iter().map(|segment| segment.bits.len()).sum();
        let mut out = Vec::with_capacity(data_bits / 8 + 16 * segments.len() + 1024);
        out.extend([VERSION, JPEG, self.orientation.exif(), order.side]);
        self.frame.pack(&mut out);
        for range in [&self.extent.columns, &self.extent.rows] {
            put_number(&mut out, range.start.into());
            put_number(&mut out, (range.end - range.start).into());
        }
        self.pack_table(&mut out);
        let mut data = BitWriter::new(&mut out);
        // Consecutive segments are copied as one.
        for together in segments.chunk_by(|one, next| one.bits.end == next.bits.start) {
            let (first, last) = (&together[0], &together[together.len() - 1]);
            data.copy(bytes, first.bits.start..last.bits.end);
        }
        data.finish();
        finished(out)
    }

    fn pack_table(&self, out: &mut Vec<u8>) {
        let mut segments = self.scan.segments.iter();
        let mut before = [0; COMPONENTS];
        for mut mcus in self.rows() {
            let Some(first) = segments.as_slice().first() else { return };
            if self.has_predictors() {
                for (now, before) in first.predictors.iter().zip(before).take(self.frame.components.len()) {
                    put_signed(out, i64::from(*now) - i64::from(before));
                }
                before = first.predictors;
            }
            while !mcus.is_empty() {
                let Some(segment) = segments.next() else { return };
                put_number(out, segment.bits.len() as u64);
                out.extend(segment.sum_after.iter().flat_map(|sum| sum.to_le_bytes()));
                mcus.start += segment.mcus;
            }
        }
    }

    fn unpack(mut reader: PackedReader<'a>) -> Option<Self> {
        let [orientation, side] = *reader.array()?;
        let (orientation, order) = (Orientation::from_exif(orientation.into())?, Order::by_side(side)?);
        let frame = JpegFrame::unpack(&mut reader)?;
        let (columns, rows) = frame.mcus();
        let mut range = |end: u32| {
            let start = u32::try_from(reader.number()?).ok()?;
            let len = u32::try_from(reader.number()?).ok().filter(|&len| len > 0)?;
            start.checked_add(len).filter(|&last| last <= end).map(|last| start..last)
        };
        let (columns, rows) = (range(columns)?, range(rows)?);
        let scan = Scan { bytes: &[], segments: Cow::default(), order };
        let mut this = Self { frame: Cow::Owned(frame), orientation, extent: Extent { rows, columns }, scan };
        this.unpack_table(&mut reader)?;
        Some(this)
    }

    fn unpack_table(&mut self, reader: &mut PackedReader<'a>) -> Option<()> {
        let interval = self.frame.restart_interval;
        let padding = if interval == 0 { 0 } else { 7 };
        let mut segments = Vec::new();
        let mut before = [0; COMPONENTS];
        let mut start = 0_usize;
        for mut mcus in self.rows() {
            if self.has_predictors() {
                for before in before.iter_mut().take(self.frame.components.len()) {
                    *before = i32::try_from(reader.signed()?.checked_add((*before).into())?).ok()?;
                }
            }
            let mut predictors = before;
            while !mcus.is_empty() {
                let count = until_restart(&mcus, interval);
                let end = start.checked_add(usize::try_from(reader.number()?).ok()?)?;
                let has_sum = interval == 0 && self.has_predictors();
                let sum_after = if has_sum { Some(u16::from_le_bytes(*reader.array()?)) } else { None };
                segments.push(McuRun { bits: start..end, mcus: count, predictors, padding, sum_after });
                mcus.start += count;
                (start, predictors) = (end, [0; COMPONENTS]);
            }
        }
        self.scan.bytes = reader.rest();
        self.scan.segments = Cow::Owned(segments);
        // The data must have exactly the announced bits, so no segment reaches outside.
        (self.scan.bytes.len() == start.div_ceil(8)).then_some(())
    }

    /// Whether rows start with predictors of their own.
    fn has_predictors(&self) -> bool {
        self.scan.order == Order::WHOLE
    }

    /// The MCUs of each row with an entry in the table, by their numbers in the scan of the whole picture.
    fn rows(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let Extent { rows, columns } = self.extent.clone();
        let in_row = u64::from(self.frame.mcus().0);
        let number = move |row: u32, column: u32| u64::from(row) * in_row + u64::from(column);
        let all = 0..u64::from(rows.end - rows.start) * u64::from(columns.end - columns.start);
        // Re-encoded data is a single segment over all rows.
        let as_one = (!self.has_predictors()).then_some(all);
        let rows = if as_one.is_some() { 0..0 } else { rows };
        as_one.into_iter().chain(rows.map(move |row| number(row, columns.start)..number(row, columns.end)))
    }
}

fn finished(mut content: Vec<u8>) -> Vec<u8> {
    content.extend(xxh3_64(&content).to_le_bytes());
    content
}
