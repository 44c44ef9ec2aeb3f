//! Walks the entropy-coded data of a file once, without decoding pixels.
//!
//! In: a whole file. Out: for every few MCUs, the place of the first bit and the DC predictors; on the way, the coefficients of the
//! MCUs that the caller reads instead of skipping them. A file is walked to the end of its data, and anything unexpected there makes
//! it [`NotSeekable`]. So the data of a file with an index are complete. A missing end marker is accepted, and bytes after it are
//! ignored.

use super::bits::{BitCursor, BitReader};
use super::coefficients::{Coefficients, Order};
use super::frame::JpegFrame;
use super::huffman::{Runs, Symbols, difference};
use super::segment::EntropySegment;
use super::table_cache::{Block, TableCache};

/// Upper limit of components.
pub(super) const COMPONENTS: usize = 4;
/// Upper limit of a file's size in bytes: places are bit positions in 32 bits.
pub(super) const MAX_BYTES: usize = (u32::MAX / 8) as usize - 16;

/// Upper limit of a DC predictor. Those of valid 8-bit pictures stay below a quarter of this.
const MAX_PREDICTOR: u32 = (1 << 14) - 1;

/// Why a file has no seek index. It is decoded by region or as a whole instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no seek index for this file: {0}")]
pub struct NotSeekable(pub(super) &'static str);

/// DC predictors: the DC value of the last block of each component.
pub(super) type Predictors = [i16; COMPONENTS];

/// The results of a walk. A *group* is the MCUs between two recorded places. The last group of a row may be shorter.
#[derive(Debug, Default)]
pub(super) struct WalkedScan {
    /// For each group of each row: the place of its first bit, counted from the beginning of the scan.
    pub starts: Vec<u32>,
    /// For each group of each row: the predictors after it, before a restart.
    pub predictors: Vec<Predictors>,
    /// For each row: the place after its last bit.
    pub ends: Vec<u32>,
}

/// A walk over the scan of a file. MCUs are skipped or read, in their order.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    file: &'a [u8],
    pub frame: JpegFrame,
    /// Where the scan begins in the file.
    pub scan: usize,
    /// Number of MCUs in a group.
    every: u32,
    blocks: Vec<Block<Runs>>,
    /// MCUs in a row, in the scan, and between two restarts.
    columns: u32,
    total: u64,
    interval: u64,
    /// The data up to the next marker, the place in it, and the byte of the file after the marker.
    segment: EntropySegment,
    bits: BitCursor,
    next_segment: usize,
    /// The number of the first MCU after the segment.
    segment_end: u64,
    /// The next MCU: its number, its column and its predictors.
    mcu: u64,
    column: u32,
    predictors: [i32; COMPONENTS],
    walked: WalkedScan,
}

impl<'a> Walk<'a> {
    /// Reads the header of a file, to record a place every `every` MCUs of each row.
    pub(super) fn open(file: &'a [u8], every: u32) -> Result<Self, NotSeekable> {
        let (frame, scan) = JpegFrame::read(file).map_err(NotSeekable)?;
        if file.len() > MAX_BYTES {
            return Err(NotSeekable("it is larger than 512 MiB"));
        }
        let blocks = blocks(&frame);
        let (columns, rows) = frame.mcus();
        let total = u64::from(columns) * u64::from(rows);
        // A block takes at least two bits, so an impossible size is detected before memory is allocated.
        if total * blocks.len() as u64 > file.len() as u64 * 4 {
            return Err(NotSeekable("its size does not fit its length"));
        }
        let interval = if frame.restart_interval == 0 { total } else { u64::from(frame.restart_interval) };
        Ok(Self {
            file,
            frame,
            scan,
            every,
            blocks,
            columns,
            total,
            interval,
            segment: EntropySegment::default(),
            bits: BitCursor::default(),
            next_segment: scan,
            segment_end: 0,
            mcu: 0,
            column: 0,
            predictors: [0; COMPONENTS],
            walked: WalkedScan::default(),
        })
    }

    /// Skips the MCUs before number `mcu` of the scan.
    pub(super) fn skip_to(&mut self, mcu: u64) -> Result<(), NotSeekable> {
        self.walk_to(mcu, |_, block, _, bits| block.ac.skip_block(bits))
    }

    /// Reads the next MCU into zeroed blocks. `blocks` has the tables for it.
    pub(super) fn read(
        &mut self,
        blocks: &[Block<Coefficients>],
        coefficients: &mut [[i16; 64]],
    ) -> Result<(), NotSeekable> {
        self.walk_to(self.mcu + 1, |number, _, dc, bits| {
            let out = coefficients.get_mut(number)?;
            out[0] = dc as i16;
            blocks.get(number)?.ac.read_block(bits, Order::WHOLE, out)
        })
    }

    /// Skips the rest of the scan. Returns what was recorded.
    pub(super) fn finish(mut self) -> Result<(JpegFrame, WalkedScan), NotSeekable> {
        self.skip_to(self.total)?;
        Ok((self.frame, self.walked))
    }

    /// Advances to MCU number `end`. `pass` gets each block after its DC difference: its number in the MCU, its tables and its DC
    /// value.
    #[inline]
    fn walk_to(
        &mut self,
        end: u64,
        mut pass: impl FnMut(usize, &Block<Runs>, i32, &mut BitReader<'_>) -> Option<()>,
    ) -> Result<(), NotSeekable> {
        while self.mcu < end {
            if self.mcu == self.segment_end {
                self.begin_segment()?;
            }
            let EntropySegment { bytes, places, .. } = &mut self.segment;
            let mut bits = BitReader::resume(bytes, self.bits);
            let (mut mcu, mut column, mut predictors) = (self.mcu, self.column, self.predictors);
            let last = self.segment_end.min(end);
            while mcu < last {
                if column % self.every == 0 {
                    self.walked.starts.push(places.of(bits.position()));
                }
                for (number, block) in self.blocks.iter().enumerate() {
                    let damage = NotSeekable("its data is not a sequence of blocks");
                    let predictor = &mut predictors[block.component];
                    *predictor += difference(&block.dc, &mut bits).ok_or(damage)?;
                    pass(number, block, *predictor, &mut bits).ok_or(damage)?;
                }
                if bits.is_past_end() {
                    return Err(NotSeekable("its data is truncated"));
                }
                mcu += 1;
                column += 1;
                if column % self.every == 0 || column == self.columns {
                    self.walked.predictors.push(narrow(predictors)?);
                }
                if column == self.columns {
                    self.walked.ends.push(places.of(bits.position()));
                    column = 0;
                }
            }
            self.bits = bits.pause();
            (self.mcu, self.column, self.predictors) = (mcu, column, predictors);
            if self.mcu == self.segment_end {
                self.end_segment()?;
            }
        }
        Ok(())
    }

    fn begin_segment(&mut self) -> Result<(), NotSeekable> {
        self.next_segment = self.segment.read(self.file, self.scan, self.next_segment)?;
        self.bits = BitCursor::default();
        self.segment_end = (self.mcu + self.interval).min(self.total);
        self.predictors = [0; COMPONENTS];
        Ok(())
    }

    /// Checks that nothing but the expected marker follows the last MCU of the segment.
    fn end_segment(&self) -> Result<(), NotSeekable> {
        let EntropySegment { bytes, marker, .. } = &self.segment;
        // Up to seven bits fill the last byte. A whole unused byte is not part of any MCU.
        if bytes.len() * 8 - BitReader::resume(bytes, self.bits).position() >= 8 {
            return Err(NotSeekable("there are bytes after its data"));
        }
        let is_last = self.mcu == self.total;
        // Restart markers count from 0xd0 to 0xd7 and start over. After the last MCU comes the end of the image, 0xd9.
        let expected = if is_last { 0xd9 } else { 0xd0 | ((self.mcu / self.interval - 1) % 8) as u8 };
        if marker.is_some_and(|marker| marker != expected) || (marker.is_none() && !is_last) {
            return Err(NotSeekable("its data is followed by an unexpected marker"));
        }
        Ok(())
    }
}

fn narrow(predictors: [i32; COMPONENTS]) -> Result<Predictors, NotSeekable> {
    let mut narrow = [0; COMPONENTS];
    for (narrow, &value) in narrow.iter_mut().zip(&predictors) {
        *narrow = value as i16;
        if value.unsigned_abs() > MAX_PREDICTOR {
            return Err(NotSeekable("a DC value is out of range"));
        }
    }
    Ok(narrow)
}

/// The tables to walk over the blocks of an MCU.
pub(super) fn blocks(frame: &JpegFrame) -> Vec<Block<Runs>> {
    thread_local! {
        static KEPT: (TableCache<Symbols>, TableCache<Runs>) = const { (TableCache::new(), TableCache::new()) };
    }
    KEPT.with(|(dc, ac)| Block::of_mcu(frame, dc, ac, Runs::new))
}
