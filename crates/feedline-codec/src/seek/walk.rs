//! Walks the entropy-coded data of a file once, without decoding pixels.
//!
//! In: a whole file. Out: for every few MCUs, the place of the first bit and the DC predictors. A file is walked to the end of its
//! data, and anything unexpected there makes it [`NotSeekable`]. So the data of a file with an index are complete. A missing end
//! marker is accepted, and bytes after it are ignored.

use super::bits::BitReader;
use super::frame::JpegFrame;
use super::huffman::{Runs, Symbols, difference};
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

/// Records a place every `every` MCUs of each row. The scan begins at `scan`.
pub(super) fn walk(file: &[u8], frame: &JpegFrame, scan: usize, every: u32) -> Result<WalkedScan, NotSeekable> {
    if file.len() > MAX_BYTES {
        return Err(NotSeekable("it is larger than 512 MiB"));
    }
    let blocks = blocks(frame);
    let (columns, rows) = frame.mcus();
    let total = u64::from(columns) * u64::from(rows);
    // A block takes at least two bits, so an impossible size is detected before memory is allocated.
    if total * blocks.len() as u64 > file.len() as u64 * 4 {
        return Err(NotSeekable("its size does not fit its length"));
    }
    let interval = if frame.restart_interval == 0 { total } else { u64::from(frame.restart_interval) };
    let mut walked = WalkedScan::default();
    let mut segment = EntropySegment::default();
    let mut next = scan;
    let (mut mcu, mut column) = (0, 0);
    while mcu < total {
        next = segment.read(file, scan, next)?;
        let EntropySegment { bytes, places, marker } = &mut segment;
        let mut bits = BitReader::new(bytes);
        let mut predictors = [0_i32; COMPONENTS];
        let last = (mcu + interval).min(total);
        while mcu < last {
            if column % every == 0 {
                walked.starts.push(places.of(bits.position()));
            }
            for Block { component, dc, ac } in &blocks {
                let damage = NotSeekable("its data is not a sequence of blocks");
                predictors[*component] += difference(dc, &mut bits).ok_or(damage)?;
                ac.skip_block(&mut bits).ok_or(damage)?;
            }
            if bits.is_past_end() {
                return Err(NotSeekable("its data is truncated"));
            }
            mcu += 1;
            column += 1;
            if column % every == 0 || column == columns {
                walked.predictors.push(narrow(predictors)?);
            }
            if column == columns {
                walked.ends.push(places.of(bits.position()));
                column = 0;
            }
        }
        // Up to seven bits fill the last byte. A whole unused byte is not part of any MCU.
        if bytes.len() * 8 - bits.position() >= 8 {
            return Err(NotSeekable("there are bytes after its data"));
        }
        // Restart markers count from 0xd0 to 0xd7 and start over. After the last MCU comes the end of the image, 0xd9.
        let expected = if mcu < total { 0xd0 | ((mcu / interval - 1) % 8) as u8 } else { 0xd9 };
        if marker.is_some_and(|marker| marker != expected) || (marker.is_none() && mcu < total) {
            return Err(NotSeekable("its data is followed by an unexpected marker"));
        }
    }
    Ok(walked)
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

/// Data between two markers, without stuffing.
#[derive(Debug, Default)]
struct EntropySegment {
    bytes: Vec<u8>,
    places: Places,
    /// The marker after it.
    marker: Option<u8>,
}

/// Where the bits of a segment lie in the scan.
#[derive(Debug, Default)]
struct Places {
    /// The byte of the scan at which the segment starts.
    start: usize,
    /// For each stuffed zero, the number of bytes of the segment before it, not counting stuffed zeros.
    stuffed: Vec<usize>,
    /// Number of zeros before the last requested place.
    passed: usize,
}

impl EntropySegment {
    /// Reads from `at` on. Returns the place after the marker.
    fn read(&mut self, file: &[u8], scan: usize, at: usize) -> Result<usize, NotSeekable> {
        self.bytes.clear();
        self.places.stuffed.clear();
        (self.places.start, self.places.passed) = (at - scan, 0);
        let mut rest = file.get(at..).unwrap_or_default();
        self.marker = loop {
            // A 0xff in the data is followed by a stuffed zero. Before any other byte it is a marker.
            let Some(marker) = memchr::memchr(0xff, rest) else {
                self.bytes.extend_from_slice(rest);
                rest = &[];
                break None;
            };
            match rest.get(marker + 1) {
                Some(0) => {
                    self.bytes.extend_from_slice(&rest[..=marker]);
                    self.places.stuffed.push(self.bytes.len());
                    rest = &rest[marker + 2..];
                }
                Some(0xff) | None => return Err(NotSeekable("there are fill bytes in its data")),
                Some(&kind) => {
                    self.bytes.extend_from_slice(&rest[..marker]);
                    rest = &rest[marker + 2..];
                    break Some(kind);
                }
            }
        };
        Ok(file.len() - rest.len())
    }
}

impl Places {
    /// The place in the scan of a bit of the segment. Must be called with ascending bits.
    fn of(&mut self, bit: usize) -> u32 {
        let byte = bit / 8;
        // Each stuffed zero before this byte shifts its place in the file by one.
        while self.stuffed.get(self.passed).is_some_and(|&before| before <= byte) {
            self.passed += 1;
        }
        ((self.start + byte + self.passed) * 8 + bit % 8) as u32
    }
}
