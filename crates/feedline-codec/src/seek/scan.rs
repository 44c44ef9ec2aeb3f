//! The entropy-coded data of a part, and its coefficients MCU by MCU.
//!
//! In: an index, and the bytes of the file that contain the part. Out: blocks of coefficients, in the order in which a decoder of a
//! picture of the part's size needs them. Nothing is re-encoded: the index has the start of each row and its DC predictors. If the
//! last bit of a segment is known, the end is verified.

use std::borrow::Cow;
use std::ops::Range;

use super::bits::BitReader;
use super::coefficients::{Coefficients, Order};
use super::cut::Cut;
use super::frame::JpegFrame;
use super::huffman::{Symbols, difference};
use super::jpeg::JpegIndex;
use super::mcus::McuSource;
use super::table_cache::{Block, TableCache};
use super::walk::COMPONENTS;
use crate::error::BadIndex;

/// The data of some MCUs, without stuffing.
#[derive(Clone, Debug)]
pub(super) struct Scan<'m> {
    pub bytes: &'m [u8],
    pub segments: Cow<'m, [McuRun]>,
    pub order: &'static Order,
}

/// Consecutive MCUs in the data.
#[derive(Clone, Debug)]
pub(super) struct McuRun {
    pub bits: Range<usize>,
    pub mcus: u64,
    pub predictors: [i32; COMPONENTS],
    /// Upper limit of unused bits after the last MCU.
    pub padding: usize,
    /// The [`sum`] of the predictors after it, if known.
    pub sum_after: Option<u16>,
}

/// A checksum that changes if a predictor changes.
pub(super) fn sum(predictors: [i32; COMPONENTS]) -> u16 {
    // Odd factors, so that a change of one component always changes the sum.
    let factors = [1, 0x4f1b, 0x9e37, 0xc2b3];
    predictors
        .iter()
        .zip(factors)
        .fold(0, |sum: u16, (&value, factor)| sum.wrapping_add((value as u16).wrapping_mul(factor)))
}

impl<'m> Scan<'m> {
    /// Extracts the data of a part into `memory`. `bytes` begin at byte `offset` of the file and contain the part's.
    pub(super) fn gather(
        index: &JpegIndex,
        cut: &Cut,
        bytes: &[u8],
        offset: u64,
        memory: &'m mut Vec<u8>,
    ) -> Result<Self, BadIndex> {
        memory.clear();
        let mut segments = Vec::with_capacity(cut.rows.len());
        let mut restarts = Vec::new();
        let columns = u64::from(index.frame.mcus().0);
        let every = u64::from(JpegIndex::every());
        let interval = index.frame.restart_interval;
        for row in cut.rows.clone() {
            let (start, end) = (index.place(row, cut.groups.start)?, index.place(row, cut.groups.end)?);
            let first = memory.len() * 8 + (start % 8) as usize;
            restarts.clear();
            unstuff(index.data(start..end, bytes, offset)?, memory, &mut restarts);
            // After a restart the next place is not where the last bit is.
            let last = if interval == 0 { last_bit(memory, end) } else { memory.len() * 8 };

            let first_mcu = u64::from(row) * columns + u64::from(cut.groups.start) * every;
            let last_mcu = u64::from(row) * columns + (u64::from(cut.groups.end) * every).min(columns);
            let predictors = index.predictors_before(row, cut.groups.start, first_mcu)?;
            add_segments(&mut segments, first..last, &restarts, first_mcu..last_mcu, predictors, interval)?;
            if let Some(last) = segments.last_mut().filter(|_| interval == 0) {
                last.sum_after = index.predictors_after(row, cut.groups.end - 1).map(sum);
            }
        }
        Ok(Self { bytes: memory, segments: segments.into(), order: Order::WHOLE })
    }
}

/// Removes stuffing and markers, and records the bytes before which restarts were.
pub(super) fn unstuff(mut data: &[u8], out: &mut Vec<u8>, restarts: &mut Vec<usize>) {
    while let Some(marker) = memchr::memchr(0xff, data) {
        // After 0xff comes a zero (stuffing: the 0xff is data) or a restart marker, which is not data.
        let is_restart = matches!(data.get(marker + 1), Some(0xd0..=0xd7));
        out.extend_from_slice(&data[..marker + usize::from(!is_restart)]);
        if is_restart {
            restarts.push(out.len());
        }
        data = data.get(marker + 2..).unwrap_or_default();
    }
    out.extend_from_slice(data);
}

/// The last bit before a place, in data that ends with the byte of this place.
pub(super) fn last_bit(data: &[u8], place: u64) -> usize {
    (data.len() * 8).saturating_sub((place.div_ceil(8) * 8 - place) as usize)
}

/// Number of MCUs of a range up to its end or the next restart.
pub(super) fn until_restart(mcus: &Range<u64>, interval: u32) -> u64 {
    let left = mcus.end - mcus.start;
    if interval == 0 { left } else { left.min(u64::from(interval) - mcus.start % u64::from(interval)) }
}

/// Adds the MCUs of a row, whose data are these bits.
pub(super) fn add_segments(
    segments: &mut Vec<McuRun>,
    bits: Range<usize>,
    restarts: &[usize],
    mut mcus: Range<u64>,
    mut predictors: [i32; COMPONENTS],
    interval: u32,
) -> Result<(), BadIndex> {
    if bits.is_empty() {
        return Err(BadIndex("a row ends before it begins"));
    }
    let mut start = bits.start;
    let inside = restarts.iter().map(|&byte| byte * 8).filter(|&bit| bits.start < bit && bit < bits.end);
    for end in inside.chain([bits.end]) {
        let count = until_restart(&mcus, interval);
        if count == 0 {
            return Err(BadIndex("a row has more restarts than expected"));
        }
        // Before a restart marker the last byte is filled up with ones.
        let padding = if interval == 0 { 0 } else { 7 };
        segments.push(McuRun { bits: start..end, mcus: count, predictors, padding, sum_after: None });
        mcus.start += count;
        // A restart resets the predictors.
        (start, predictors) = (end, [0; COMPONENTS]);
    }
    if mcus.is_empty() { Ok(()) } else { Err(BadIndex("a row ends too early")) }
}

/// Reads the MCUs of a [`Scan`], one after the other.
#[derive(Debug)]
pub(crate) struct Mcus<'a> {
    blocks: Vec<Block<Coefficients>>,
    order: &'static Order,
    bits: BitReader<'a>,
    segments: std::slice::Iter<'a, McuRun>,
    segment: Option<&'a McuRun>,
    /// MCUs left of the segment, and the predictors.
    left: u64,
    predictors: [i32; COMPONENTS],
}

impl<'a> Mcus<'a> {
    /// The MCUs of a part of a picture with this header.
    pub(super) fn new(frame: &JpegFrame, scan: &'a Scan<'_>) -> Self {
        Self {
            blocks: blocks(frame),
            order: scan.order,
            bits: BitReader::new(scan.bytes),
            segments: scan.segments.iter(),
            segment: None,
            left: 0,
            predictors: [0; COMPONENTS],
        }
    }

    /// Advances past the next MCU. `read` gets each block with its DC value, and reads its AC coefficients.
    #[inline]
    pub(super) fn next_with(
        &mut self,
        mut read: impl FnMut(&Block<Coefficients>, i32, &mut BitReader<'a>) -> Option<()>,
    ) -> Option<()> {
        if self.left == 0 {
            let segment = self.segments.next()?;
            (self.left, self.predictors, self.segment) = (segment.mcus, segment.predictors, Some(segment));
            self.bits.go_to(segment.bits.start);
        }
        for block in &self.blocks {
            let predictor = &mut self.predictors[block.component];
            *predictor = predictor.wrapping_add(difference(&block.dc, &mut self.bits)?);
            read(block, *predictor, &mut self.bits)?;
        }
        self.left -= 1;
        let segment = self.segment?;
        let unused = segment.bits.end.checked_sub(self.bits.position())?;
        let is_sound = self.left > 0
            || (unused <= segment.padding && segment.sum_after.is_none_or(|expected| expected == sum(self.predictors)));
        is_sound.then_some(())
    }
}

impl McuSource for Mcus<'_> {
    fn blocks_in_each(&self) -> usize {
        self.blocks.len()
    }

    fn next(&mut self, coefficients: &mut [[i16; 64]]) -> Option<()> {
        let order = self.order;
        let mut coefficients = coefficients.iter_mut();
        self.next_with(|block, dc, bits| {
            let out = coefficients.next()?;
            out[0] = dc as i16;
            block.ac.read_block(bits, order, out)
        })
    }
}

/// The tables to read the blocks of an MCU.
pub(super) fn blocks(frame: &JpegFrame) -> Vec<Block<Coefficients>> {
    thread_local! {
        static KEPT: (TableCache<Symbols>, TableCache<Coefficients>) = const { (TableCache::new(), TableCache::new()) };
    }
    KEPT.with(|(dc, ac)| Block::of_mcu(frame, dc, ac, Coefficients::new))
}
