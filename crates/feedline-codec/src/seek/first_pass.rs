//! Reads the MCUs of a crop while the whole file is walked, so that the entropy-coded data are decoded only once.
//!
//! In: a whole file and a crop. Out: the coefficients of the crop's MCUs, one MCU at a time, and the seek index that
//! [`SeekIndex::build`] would build. No coefficients are kept in memory.

use super::SeekIndex;
use super::coefficients::Coefficients;
use super::cut::Extent;
use super::index::IndexKind;
use super::jpeg::JpegIndex;
use super::mcus::McuSource;
use super::scan::blocks;
use super::table_cache::Block;
use super::walk::{NotSeekable, Walk};
use crate::header::Header;
use crate::rect::Rect;

/// The MCUs around a crop, in a walk over the file.
pub(crate) struct FirstPass<'a> {
    walk: Walk<'a>,
    blocks: Vec<Block<Coefficients>>,
    extent: Extent,
    /// The next MCU.
    row: u32,
    column: u32,
    /// What ended the walk too early.
    damage: Option<NotSeekable>,
}

impl<'a> FirstPass<'a> {
    /// Begins a walk over a JPEG. `crop` lies inside the stored picture.
    pub(crate) fn open(file: &'a [u8], crop: Rect) -> Result<Self, NotSeekable> {
        let walk = JpegIndex::walk(file)?;
        let extent = walk.frame.extent_around(crop).ok_or(NotSeekable("its sizes contradict each other"))?;
        let (row, column) = (extent.rows.start, extent.columns.start);
        Ok(Self { blocks: blocks(&walk.frame), walk, extent, row, column, damage: None })
    }

    /// The part of the picture that the MCUs cover.
    pub(crate) fn rect(&self) -> Rect {
        self.walk.frame.rect_of(&self.extent)
    }

    /// A header for the part as a picture of its own, without codes.
    pub(crate) fn header(&self) -> Vec<u8> {
        self.walk.frame.header_of(self.rect())
    }

    /// Walks to the end of the file. `header` is that of the file.
    pub(crate) fn finish(self, header: &Header) -> Result<SeekIndex, NotSeekable> {
        match self.damage {
            Some(damage) => Err(damage),
            None => Ok(SeekIndex(IndexKind::Jpeg(JpegIndex::of_walk(self.walk, header.orientation)?.into()))),
        }
    }

    fn read_next(&mut self, coefficients: &mut [[i16; 64]]) -> Result<(), NotSeekable> {
        let in_row = self.walk.frame.mcus().0;
        self.walk.skip_to(u64::from(self.row) * u64::from(in_row) + u64::from(self.column))?;
        self.walk.read(&self.blocks, coefficients)?;
        self.column += 1;
        if self.column == self.extent.columns.end {
            (self.row, self.column) = (self.row + 1, self.extent.columns.start);
        }
        Ok(())
    }
}

impl McuSource for FirstPass<'_> {
    fn blocks_in_each(&self) -> usize {
        self.blocks.len()
    }

    fn next(&mut self, coefficients: &mut [[i16; 64]]) -> Option<()> {
        if self.damage.is_some() || self.row == self.extent.rows.end {
            return None;
        }
        self.read_next(coefficients).map_err(|damage| self.damage = Some(damage)).ok()
    }
}
