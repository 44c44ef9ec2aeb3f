//! The entropy-coded data of a cut, and its coefficients MCU by MCU.
//!
//! In: an index, and the bytes of the file that hold the cut. Out: blocks of coefficients, in the order in which a decoder
//! of a picture of just the cut's size asks for them. Nothing is coded anew: the index knows where each row begins in the file
//! and the DC predictors there.

use std::ops::Range;

use super::bits::BitReader;
use super::coefficients::Coefficients;
use super::cut::Cut;
use super::frame::Frame;
use super::huffman::{Symbols, difference};
use super::index::BadIndex;
use super::jpeg::JpegIndex;
use super::kept::{Block, Kept};
use super::walk::COMPONENTS;

/// The data of a cut, without stuffing.
#[derive(Debug)]
pub(super) struct Scan<'m> {
    bytes: &'m mut Vec<u8>,
    segments: Vec<Segment>,
}

/// MCUs that lie behind each other in the data.
#[derive(Debug)]
struct Segment {
    bits: Range<usize>,
    mcus: u64,
    predictors: [i32; COMPONENTS],
    /// The predictors behind it, where the index knows them; it then ends with the last of its bits.
    behind: Option<[i32; COMPONENTS]>,
}

impl<'m> Scan<'m> {
    /// Takes the data of a cut into `memory`; `bytes` begin at byte `offset` of the file and hold the cut's.
    pub fn gather(
        index: &JpegIndex,
        cut: &Cut,
        bytes: &[u8],
        offset: u64,
        memory: &'m mut Vec<u8>,
    ) -> Result<Self, BadIndex> {
        memory.clear();
        let mut this = Self { bytes: memory, segments: Vec::with_capacity(cut.rows.len()) };
        let columns = u64::from(index.frame.mcus().0);
        let every = u64::from(JpegIndex::every());
        for row in cut.rows.clone() {
            let place = |group| index.place(row, group).ok_or(BadIndex("a place is out of range"));
            let (start, end) = (place(cut.groups.start)?, place(cut.groups.end)?);
            let range = index.scan + start / 8..index.scan + end.div_ceil(8);
            let inside = range.start.checked_sub(offset).zip(range.end.checked_sub(offset));
            let data = inside.and_then(|(start, end)| bytes.get(start as usize..end as usize));
            let data = data.ok_or(BadIndex("a place lies outside the bytes given"))?;

            let first_mcu = u64::from(row) * columns + u64::from(cut.groups.start) * every;
            let last_mcu = u64::from(row) * columns + (u64::from(cut.groups.end) * every).min(columns);
            let predictors = index.predictors_before(row, cut.groups.start, first_mcu)?;
            this.add_row(data, (start % 8) as usize, first_mcu..last_mcu, predictors, index.frame.restart_interval)?;
            // Behind a restart the next place is not where the last bit is.
            if let Some(last) = this.segments.last_mut().filter(|_| index.frame.restart_interval == 0) {
                last.bits.end = (this.bytes.len() * 8).saturating_sub((end.div_ceil(8) * 8 - end) as usize);
                last.behind = index.predictors_behind(row, cut.groups.end - 1);
            }
        }
        Ok(this)
    }

    /// Adds the MCUs of a row, whose data begins with bit `first`.
    fn add_row(
        &mut self,
        mut data: &[u8],
        first: usize,
        mut mcus: Range<u64>,
        predictors: [i32; COMPONENTS],
        interval: u32,
    ) -> Result<(), BadIndex> {
        let mut start = self.bytes.len() * 8 + first;
        let mut predictors = predictors;
        let interval = u64::from(interval);
        let mut add = |end: usize| {
            let left = mcus.end - mcus.start;
            let count = if interval == 0 { left } else { left.min(interval - mcus.start % interval) };
            mcus.start += count;
            if count > 0 {
                self.segments.push(Segment { bits: start..end * 8, mcus: count, predictors, behind: None });
            }
            (start, predictors) = (end * 8, [0; COMPONENTS]);
        };
        while let Some(marker) = memchr::memchr(0xff, data) {
            let is_restart = matches!(data.get(marker + 1), Some(0xd0..=0xd7));
            self.bytes.extend_from_slice(&data[..marker + usize::from(!is_restart)]);
            if is_restart {
                add(self.bytes.len());
            }
            data = data.get(marker + 2..).unwrap_or_default();
        }
        self.bytes.extend_from_slice(data);
        add(self.bytes.len());
        if mcus.is_empty() { Ok(()) } else { Err(BadIndex("a row ends too early")) }
    }
}

/// Reads the MCUs of a [`Scan`], one after the other.
#[derive(Debug)]
pub(crate) struct Mcus<'a> {
    blocks: Vec<Block<Coefficients>>,
    bits: BitReader<'a>,
    segments: std::slice::Iter<'a, Segment>,
    /// MCUs left of the segment, the end of its bits, and the predictors.
    left: u64,
    end: usize,
    behind: Option<[i32; COMPONENTS]>,
    predictors: [i32; COMPONENTS],
}

impl<'a> Mcus<'a> {
    /// Those of a cut of a picture with this header.
    pub(super) fn new(frame: &Frame, scan: &'a Scan<'_>) -> Self {
        Self {
            blocks: blocks(frame),
            bits: BitReader::new(scan.bytes),
            segments: scan.segments.iter(),
            left: 0,
            end: scan.bytes.len() * 8,
            behind: None,
            predictors: [0; COMPONENTS],
        }
    }

    /// Blocks in an MCU.
    pub fn blocks_in_each(&self) -> usize {
        self.blocks.len()
    }

    /// Reads the next MCU into blocks that are zero so far; `None` if there is none, or what is there is no MCU.
    pub fn next(&mut self, coefficients: &mut [[i16; 64]]) -> Option<()> {
        if self.left == 0 {
            let segment = self.segments.next()?;
            (self.left, self.end, self.predictors) = (segment.mcus, segment.bits.end, segment.predictors);
            self.behind = segment.behind;
            self.bits.go_to(segment.bits.start);
        }
        for (block, out) in self.blocks.iter().zip(coefficients) {
            let predictor = &mut self.predictors[block.component];
            *predictor = predictor.wrapping_add(difference(&block.dc, &mut self.bits)?);
            out[0] = *predictor as i16;
            block.ac.read_block(&mut self.bits, out)?;
        }
        self.left -= 1;
        let is_sound = match self.behind.filter(|_| self.left == 0) {
            Some(behind) => self.bits.position() == self.end && self.predictors == behind,
            None => self.bits.position() <= self.end,
        };
        is_sound.then_some(())
    }
}

fn blocks(frame: &Frame) -> Vec<Block<Coefficients>> {
    thread_local! {
        static KEPT: (Kept<Symbols>, Kept<Coefficients>) = const { (Kept::new(), Kept::new()) };
    }
    KEPT.with(|(dc, ac)| Block::of_mcu(frame, dc, ac, Coefficients::new))
}
