//! The part of a JPEG that a crop is made of.
//!
//! In: an index and a crop. Out: whole groups of MCUs around it, which decode to the very pixels that a full decode has
//! there, and the bytes of the file that hold them.

use std::ops::Range;

use super::frame::Frame;
use super::index::BadIndex;
use super::jpeg::JpegIndex;
use super::walk::COMPONENTS;
use crate::rect::Rect;

/// Narrower cuts are upsampled in another way, at an eighth of their size.
const LEAST_WIDTH: u32 = 64;

/// A part of a picture that can be cut out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// The part in pixels: the crop asked for lies inside, and all that its pixels are made of.
    pub rect: Rect,
    /// Rows of MCUs, and groups of each.
    pub rows: Range<u32>,
    pub groups: Range<u32>,
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
        let last = self.place(rows.end - 1, groups.end).filter(|&last| last >= first).ok_or(out_of_range)?;
        Ok(Cut { rect, rows, groups, bytes: self.scan + first / 8..self.scan + last.div_ceil(8) })
    }

    /// The predictors that the first MCU of a group, number `mcu` of the scan, was coded with.
    pub(super) fn predictors_before(&self, row: u32, group: u32, mcu: u64) -> Result<[i32; COMPONENTS], BadIndex> {
        let interval = u64::from(self.frame.restart_interval);
        if mcu == 0 || (interval > 0 && mcu.is_multiple_of(interval)) {
            return Ok([0; COMPONENTS]);
        }
        let (row, group) = if group > 0 { (row, group - 1) } else { (row - 1, self.groups() - 1) };
        self.predictors_behind(row, group).ok_or(BadIndex("a row is missing"))
    }
}
