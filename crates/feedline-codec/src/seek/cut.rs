//! Finds the part of a JPEG that a crop needs.
//!
//! In: a header and a crop. Out: the MCUs around the crop, which decode to exactly the pixels of a full decode. With an index:
//! whole groups of them, and their bytes in the file.

use std::ops::Range;

use super::frame::JpegFrame;
use super::jpeg::JpegIndex;
use super::walk::COMPONENTS;
use crate::error::BadIndex;
use crate::rect::Rect;

/// Narrower parts are upsampled differently at an eighth of the size.
const MIN_WIDTH: u32 = 64;

/// A non-empty range of rows and columns of MCUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub rows: Range<u32>,
    pub columns: Range<u32>,
}

impl Extent {
    /// Whether all of `other` lies in it.
    pub(super) fn contains(&self, other: &Self) -> bool {
        let holds = |outer: &Range<u32>, inner: &Range<u32>| outer.start <= inner.start && inner.end <= outer.end;
        holds(&self.rows, &other.rows) && holds(&self.columns, &other.columns)
    }
}

impl JpegFrame {
    /// The MCUs that affect a crop of the stored picture. `None` if the crop does not lie inside.
    pub(super) fn extent_around(&self, crop: Rect) -> Option<Extent> {
        let Self { width, height, .. } = *self;
        if !crop.is_inside(width, height) {
            return None;
        }
        let (mcu_width, mcu_height) = self.mcu_size();
        // Subsampled chroma pixels depend on their neighbours too.
        let (margin_x, margin_y) = (u32::from(mcu_width > 8), u32::from(mcu_height > 8));
        let rows =
            crop.top.saturating_sub(margin_y) / mcu_height..(crop.bottom() + margin_y).min(height).div_ceil(mcu_height);
        let columns =
            crop.left.saturating_sub(margin_x) / mcu_width..(crop.right() + margin_x).min(width).div_ceil(mcu_width);
        let mut extent = Extent { rows, columns };
        // Widened to the left if possible, otherwise to the right.
        while mcu_width > 8 && self.rect_of(&extent).width < MIN_WIDTH.min(width) {
            let Range { start, end } = extent.columns;
            extent.columns = if start > 0 { start - 1..end } else { start..end + 1 };
        }
        Some(extent)
    }

    /// The pixels of MCUs.
    pub(super) fn rect_of(&self, extent: &Extent) -> Rect {
        let (mcu_width, mcu_height) = self.mcu_size();
        let (left, top) = (extent.columns.start * mcu_width, extent.rows.start * mcu_height);
        let (right, bottom) = (extent.columns.end * mcu_width, extent.rows.end * mcu_height);
        Rect { left, top, width: right.min(self.width) - left, height: bottom.min(self.height) - top }
    }
}

/// A part of a picture that can be cut out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// The part in pixels. It contains the crop and everything that affects it.
    pub rect: Rect,
    /// Rows of MCUs, and groups of each.
    pub rows: Range<u32>,
    pub groups: Range<u32>,
    /// The bytes of the file that hold it.
    pub bytes: Range<u64>,
}

impl JpegIndex {
    /// The smallest part that contains everything that affects a crop of the stored picture.
    pub(super) fn cut_around(&self, crop: Rect) -> Result<Cut, BadIndex> {
        let Extent { rows, columns } = self.extent_around(crop)?;
        let groups = columns.start / Self::every()..columns.end.div_ceil(Self::every());
        let columns = groups.start * Self::every()..groups.end * Self::every();
        let rect = self.frame.rect_of(&Extent { rows: rows.clone(), columns });
        let first = self.place(rows.start, groups.start)?;
        let last = self.place(rows.end - 1, groups.end)?;
        // Both come from an index that may be forged.
        if last < first {
            return Err(BadIndex("a place is out of range"));
        }
        Ok(Cut { rect, rows, groups, bytes: self.scan + first / 8..self.scan + last.div_ceil(8) })
    }

    /// The MCUs that a crop of the stored picture depends on.
    pub(super) fn extent_around(&self, crop: Rect) -> Result<Extent, BadIndex> {
        self.frame.extent_around(crop).ok_or_else(BadIndex::of_crop)
    }

    /// The bytes of a range of places, from bytes that begin at `offset` of the file.
    pub(super) fn data<'a>(&self, places: Range<u64>, bytes: &'a [u8], offset: u64) -> Result<&'a [u8], BadIndex> {
        let range = self.scan + places.start / 8..self.scan + places.end.div_ceil(8);
        let inside = range.start.checked_sub(offset).zip(range.end.checked_sub(offset));
        let data = inside.and_then(|(start, end)| bytes.get(start as usize..end as usize));
        data.ok_or(BadIndex("a place lies outside the bytes given"))
    }

    /// The DC predictors at the start of a group, whose first MCU is number `mcu` of the scan.
    pub(super) fn predictors_before(&self, row: u32, group: u32, mcu: u64) -> Result<[i32; COMPONENTS], BadIndex> {
        let interval = u64::from(self.frame.restart_interval);
        // DC prediction starts at zero at the beginning of the scan and after each restart marker.
        if mcu == 0 || (interval > 0 && mcu.is_multiple_of(interval)) {
            return Ok([0; COMPONENTS]);
        }
        let (row, group) = if group > 0 { (row, group - 1) } else { (row - 1, self.groups() - 1) };
        self.predictors_after(row, group).ok_or(BadIndex("a row is missing"))
    }
}
