//! A crop cut out of a JPEG in the compressed domain.
//!
//! In: an index, and the bytes of the file that hold the crop. Out: an ordinary JPEG of whole groups of MCUs around it. Bits
//! are copied as they are but for the first DC difference of each component in each row, which is coded anew against the
//! end of the row above. So the cut needs no restart markers, with which decoders are slower.

use std::ops::Range;

use super::bits::{BitReader, BitWriter};
use super::frame::Frame;
use super::huffman::{Code, Symbols, category_of, difference, skip_block};
use super::index::BadIndex;
use super::jpeg::JpegIndex;
use super::walk::COMPONENTS;
use crate::rect::Rect;

/// Bytes behind the end for each block of an MCU: as long as this many are left libjpeg takes its fast way.
const SLACK_PER_BLOCK: usize = 512;
/// Narrower cuts are upsampled in another way, at an eighth of their size.
const LEAST_WIDTH: u32 = 64;

/// A part of a picture that can be cut out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// The part in pixels: the crop asked for lies inside, and all that its pixels are made of.
    pub rect: Rect,
    rows: Range<u32>,
    groups: Range<u32>,
    /// The bytes of the file that hold it.
    pub bytes: Range<u64>,
}

impl JpegIndex {
    /// The smallest part that holds what a crop of the stored picture is made of.
    pub fn cut_around(&self, crop: Rect) -> Result<Cut, BadIndex> {
        let Frame { width, height, .. } = self.frame;
        if !crop.is_inside(width, height) {
            return Err(BadIndex("the crop is not inside the picture"));
        }
        let (mcu_width, mcu_height) = self.frame.mcu_size();
        let group_width = mcu_width * Self::every();
        // Where chroma has fewer pixels, theirs are made of neighbours too.
        let (margin_x, margin_y) = (u32::from(mcu_width > 8), u32::from(mcu_height > 8));
        let rows =
            crop.top.saturating_sub(margin_y) / mcu_height..(crop.bottom() + margin_y).min(height).div_ceil(mcu_height);
        let mut groups = crop.left.saturating_sub(margin_x) / group_width
            ..(crop.right() + margin_x).min(width).div_ceil(group_width);
        let columns = |groups: &Range<u32>| groups.start * group_width..(groups.end * group_width).min(width);
        if columns(&groups).len() < LEAST_WIDTH as usize && groups.start > 0 {
            groups.start -= 1;
        }
        let (columns, lines) = (columns(&groups), rows.start * mcu_height..(rows.end * mcu_height).min(height));
        let rect = Rect {
            left: columns.start,
            top: lines.start,
            width: columns.end - columns.start,
            height: lines.end - lines.start,
        };
        let out_of_range = BadIndex("a place is out of range");
        let first = self.place(rows.start, groups.start).ok_or(out_of_range)?;
        let last = self.place(rows.end - 1, groups.end).ok_or(out_of_range)?;
        Ok(Cut { rect, rows, groups, bytes: self.scan + first / 8..self.scan + last.div_ceil(8) })
    }

    /// Writes a cut as a JPEG file; `bytes` begin at byte `offset` of the file and hold the cut's.
    pub fn write_cut(&self, cut: &Cut, bytes: &[u8], offset: u64, out: &mut Vec<u8>) -> Result<(), BadIndex> {
        out.clear();
        let dc = self.frame.dc.each_ref().map(|code| code.as_ref().map(Code::with_all_categories));
        self.frame.write((cut.rect.width, cut.rect.height), &dc, out);
        let coder = Coder::new(&self.frame, &dc);
        let mut writer = BitWriter::new(out);
        let mut above = [0; COMPONENTS];
        let mut segments = Segments::default();
        for row in cut.rows.clone() {
            let place = |group| self.place(row, group).ok_or(BadIndex("a place is out of range"));
            let (start, end) = (place(cut.groups.start)?, place(cut.groups.end)?);
            let range = self.scan + start / 8..self.scan + end.div_ceil(8);
            let inside = range.start.checked_sub(offset).zip(range.end.checked_sub(offset));
            let data = inside.and_then(|(start, end)| bytes.get(start as usize..end as usize));
            segments.split(data.ok_or(BadIndex("a place lies outside the bytes given"))?);

            let mut mcu = u64::from(row) * u64::from(self.frame.mcus().0) + u64::from(cut.groups.start * Self::every());
            let predictors = self.predictors_before(row, cut.groups.start, mcu)?;
            if let [segment] = segments.ranges.as_slice() {
                let bits = &segments.bytes[segment.clone()];
                let unused = (end.div_ceil(8) * 8 - end) as usize;
                let range = (start % 8) as usize..(bits.len() * 8).saturating_sub(unused);
                coder.copy_row(bits, range, predictors, &above, &mut writer)?;
                above = self.predictors_behind(row, cut.groups.end - 1).ok_or(BadIndex("a row is missing"))?;
                continue;
            }
            let row_end = u64::from(row) * u64::from(self.frame.mcus().0)
                + u64::from((cut.groups.end * Self::every()).min(self.frame.mcus().0));
            let mut first = (start % 8) as usize;
            let mut predictors = predictors;
            for segment in &segments.ranges {
                if mcu == row_end {
                    break;
                }
                let interval = u64::from(self.frame.restart_interval).max(1);
                let count = (interval - mcu % interval).min(row_end - mcu);
                let bits = &segments.bytes[segment.clone()];
                above = coder.walk_and_copy(bits, first, count, predictors, &above, &mut writer)?;
                mcu += count;
                (first, predictors) = (0, [0; COMPONENTS]);
            }
            if mcu != row_end {
                return Err(BadIndex("a row ends too early"));
            }
        }
        writer.finish();
        out.extend([0xff, 0xd9]);
        let blocks: usize = self.frame.components.iter().map(|c| c.blocks()).sum();
        out.resize(out.len() + SLACK_PER_BLOCK * blocks, 0);
        Ok(())
    }

    /// The predictors that the first MCU of a group, number `mcu` of the scan, was coded with.
    fn predictors_before(&self, row: u32, group: u32, mcu: u64) -> Result<[i32; COMPONENTS], BadIndex> {
        let interval = u64::from(self.frame.restart_interval);
        if mcu == 0 || (interval > 0 && mcu.is_multiple_of(interval)) {
            return Ok([0; COMPONENTS]);
        }
        let (row, group) = if group > 0 { (row, group - 1) } else { (row - 1, self.groups() - 1) };
        self.predictors_behind(row, group).ok_or(BadIndex("a row is missing"))
    }
}

/// Codes the first DC differences of rows anew.
struct Coder {
    components: Vec<Coded>,
}

struct Coded {
    blocks: usize,
    dc: Symbols,
    ac: Symbols,
    /// Code and length of each category.
    categories: [(u32, u32); 16],
}

impl Coder {
    fn new(frame: &Frame, extended: &[Option<Code>; 4]) -> Self {
        let there = "a frame has the codes that its components name";
        let coded = |c: &super::frame::Component| Coded {
            blocks: c.blocks(),
            dc: Symbols::new(frame.dc[usize::from(c.dc)].as_ref().expect(there)),
            ac: Symbols::new(frame.ac[usize::from(c.ac)].as_ref().expect(there)),
            categories: extended[usize::from(c.dc)].as_ref().expect(there).categories(),
        };
        Self { components: frame.components.iter().map(coded).collect() }
    }

    /// Copies the bits of a row, coded after `predictors`, so that they are coded after `above`.
    fn copy_row(
        &self,
        bytes: &[u8],
        range: Range<usize>,
        predictors: [i32; COMPONENTS],
        above: &[i32; COMPONENTS],
        writer: &mut BitWriter<'_>,
    ) -> Result<(), BadIndex> {
        let no_block = BadIndex("a place is not where a block begins");
        let mut reader = BitReader::at(bytes, range.start);
        let mut copied = range.start;
        let last = self.components.len() - 1;
        for (number, component) in self.components.iter().enumerate() {
            writer.copy(bytes, copied..reader.position());
            let value = predictors[number] + difference(&component.dc, &mut reader).ok_or(no_block)?;
            component.put(value - above[number], writer)?;
            copied = reader.position();
            if number < last {
                skip_block(&component.ac, &mut reader).ok_or(no_block)?;
                for _ in 1..component.blocks {
                    difference(&component.dc, &mut reader).ok_or(no_block)?;
                    skip_block(&component.ac, &mut reader).ok_or(no_block)?;
                }
            }
        }
        if copied > range.end {
            return Err(no_block);
        }
        writer.copy(bytes, copied..range.end);
        Ok(())
    }

    /// The same for `count` MCUs of which the end is not known; gives the predictors behind them.
    fn walk_and_copy(
        &self,
        bytes: &[u8],
        first: usize,
        count: u64,
        mut predictors: [i32; COMPONENTS],
        above: &[i32; COMPONENTS],
        writer: &mut BitWriter<'_>,
    ) -> Result<[i32; COMPONENTS], BadIndex> {
        let no_block = BadIndex("a place is not where a block begins");
        let before = predictors;
        let mut reader = BitReader::at(bytes, first);
        for _ in 0..count {
            for (component, predictor) in self.components.iter().zip(&mut predictors) {
                for _ in 0..component.blocks {
                    *predictor = predictor.wrapping_add(difference(&component.dc, &mut reader).ok_or(no_block)?);
                    skip_block(&component.ac, &mut reader).ok_or(no_block)?;
                }
            }
            if reader.is_behind_end() {
                return Err(no_block);
            }
        }
        self.copy_row(bytes, first..reader.position(), before, above, writer)?;
        Ok(predictors)
    }
}

impl Coded {
    fn put(&self, difference: i32, writer: &mut BitWriter<'_>) -> Result<(), BadIndex> {
        let (category, bits) = category_of(difference);
        let (code, len) = self.categories.get(category).copied().unwrap_or_default();
        if len == 0 {
            return Err(BadIndex("the file's table has no room for a code that is needed"));
        }
        writer.put(u64::from(code) << category | u64::from(bits), len + category as u32);
        Ok(())
    }
}

/// Data without stuffing, split at restart markers.
#[derive(Debug, Default)]
struct Segments {
    bytes: Vec<u8>,
    ranges: Vec<Range<usize>>,
}

impl Segments {
    fn split(&mut self, mut data: &[u8]) {
        self.bytes.clear();
        self.ranges.clear();
        let mut start = 0;
        while let Some(marker) = memchr::memchr(0xff, data) {
            let kind = data.get(marker + 1).copied();
            self.bytes.extend_from_slice(&data[..marker]);
            if let Some(0xd0..=0xd7) = kind {
                self.ranges.push(start..self.bytes.len());
                start = self.bytes.len();
            } else {
                self.bytes.push(0xff);
            }
            data = data.get(marker + 2..).unwrap_or_default();
        }
        self.bytes.extend_from_slice(data);
        self.ranges.push(start..self.bytes.len());
    }
}
