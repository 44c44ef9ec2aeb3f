//! Reads all scans of a progressive file, and gives the MCUs of a crop.

use std::borrow::Cow;

use super::blocks::{Blocks, Units};
use super::dc::{FirstDc, refine_dc};
use super::first::FirstAc;
use super::refine::RefineAc;
use super::script::{ScanKind, ScanPlan, Script};
use crate::error::{BadIndex, CodecError};
use crate::orientation::Orientation;
use crate::rect::Rect;
use crate::scale::Scale;
use crate::seek::bits::BitReader;
use crate::seek::coefficients::Order;
use crate::seek::cut::Extent;
use crate::seek::frame::JpegFrame;
use crate::seek::mcus::McuSource;
use crate::seek::recode::Recoded;
use crate::seek::segment::EntropySegment;
use crate::seek::trimmed::TrimmedJpeg;
use crate::seek::walk::MAX_BYTES;

/// Rows between two checks whether decoding was cancelled.
const CHECK_ROWS: u32 = 16;

/// The coefficients of the MCUs around a crop.
#[derive(Debug)]
pub(crate) struct ProgressiveCrop {
    frame: JpegFrame,
    extent: Extent,
    blocks: Blocks,
    /// The number of the next block.
    next: usize,
}

/// Why a file is not read here.
enum Stop {
    /// It is damaged or unusual: libjpeg decides.
    Unusual,
    Error(CodecError),
}

impl From<CodecError> for Stop {
    fn from(error: CodecError) -> Self {
        Self::Error(error)
    }
}

impl ProgressiveCrop {
    /// Reads the coefficients for a crop of the stored picture. `None` if libjpeg has to read the file. `check` is called now and
    /// then, and ends the work with its error.
    pub(crate) fn read(
        file: &[u8],
        crop: Rect,
        check: &dyn Fn() -> Result<(), CodecError>,
    ) -> Result<Option<Self>, CodecError> {
        match Self::read_scans(file, crop, check) {
            Ok(this) => Ok(Some(this)),
            Err(Stop::Unusual) => Ok(None),
            Err(Stop::Error(error)) => Err(error),
        }
    }

    fn read_scans(file: &[u8], crop: Rect, check: &dyn Fn() -> Result<(), CodecError>) -> Result<Self, Stop> {
        let script = Script::read(file).filter(|_| file.len() <= MAX_BYTES).ok_or(Stop::Unusual)?;
        let Script { frame, scans } = script;
        let extent = frame.extent_around(crop).ok_or(Stop::Unusual)?;
        let (columns, rows) = frame.mcus();
        let in_each: usize = frame.components.iter().map(|component| component.blocks()).sum();
        // A DC value takes at least one bit, so an impossible size is detected before memory is allocated.
        if u64::from(columns) * u64::from(rows) * in_each as u64 > file.len() as u64 * 8 {
            return Err(Stop::Unusual);
        }
        let mut blocks = Blocks::new(&frame, extent.clone())?;
        let mut segment = EntropySegment::default();
        for scan in &scans {
            read_scan(file, scan, &mut blocks, &mut segment, check)?;
        }
        Ok(Self { frame, extent, blocks, next: 0 })
    }

    /// The part of the picture that the MCUs cover.
    pub(crate) fn rect(&self) -> Rect {
        self.frame.rect_of(&self.extent)
    }

    /// A header for the part as a picture of its own, without codes.
    pub(crate) fn header(&self) -> Vec<u8> {
        self.frame.header_of(self.rect())
    }
}

impl ProgressiveCrop {
    /// The MCUs as the bytes of a [`Trimmed`](crate::Trimmed) picture, with the coefficients that a scale needs.
    pub(crate) fn trim(&self, orientation: Orientation, scale: Scale) -> Result<Vec<u8>, BadIndex> {
        let order = Order::by_side((8 / scale.divisor()) as u8).expect("there is an order for each scale");
        let columns = self.extent.columns.len() as u32;
        let recoded = Recoded::of_blocks(&self.frame, &self.blocks.coefficients, columns, order)?;
        let (scan, extent) = (recoded.scan(), self.extent.clone());
        Ok(TrimmedJpeg { frame: Cow::Borrowed(&recoded.frame), orientation, extent, scan }.to_bytes())
    }
}

impl McuSource for ProgressiveCrop {
    fn blocks_in_each(&self) -> usize {
        self.blocks.in_each
    }

    fn next(&mut self, coefficients: &mut [[i16; 64]]) -> Option<()> {
        let end = self.next + self.blocks.in_each;
        coefficients.copy_from_slice(self.blocks.coefficients.get(self.next..end)?);
        self.next = end;
        Some(())
    }
}

/// The state of reading a scan.
enum Pass {
    FirstDc(FirstDc),
    RefineDc,
    First(FirstAc),
    Refine(RefineAc),
}

impl Pass {
    fn new(scan: &ScanPlan) -> Self {
        match &scan.kind {
            ScanKind::FirstDc(codes) => Self::FirstDc(FirstDc::new(codes, scan.low)),
            ScanKind::RefineDc => Self::RefineDc,
            ScanKind::First { first, last, code } => Self::First(FirstAc::new(code, (*first, *last), scan.low)),
            ScanKind::Refine { first, last, code } => Self::Refine(RefineAc::new(code, (*first, *last), scan.low)),
        }
    }

    fn restart(&mut self) {
        match self {
            Self::FirstDc(pass) => pass.restart(),
            Self::RefineDc => {}
            Self::First(pass) => pass.restart(),
            Self::Refine(pass) => pass.restart(),
        }
    }
}

fn read_scan(
    file: &[u8],
    scan: &ScanPlan,
    blocks: &mut Blocks,
    segment: &mut EntropySegment,
    check: &dyn Fn() -> Result<(), CodecError>,
) -> Result<(), Stop> {
    let units = blocks.units(&scan.components);
    let Units { columns, rows, .. } = units;
    let total = u64::from(columns) * u64::from(rows);
    let interval = if scan.restart_interval == 0 { total } else { u64::from(scan.restart_interval) };
    let mut pass = Pass::new(scan);
    let (mut unit, mut next, mut restarts) = (0, scan.data, 0);
    while unit < total {
        next = segment.read(file, scan.data, next).map_err(|_| Stop::Unusual)?;
        let mut bits = BitReader::new(&segment.bytes);
        pass.restart();
        let end = (unit + interval).min(total);
        while unit < end {
            let (number, first) = ((unit / u64::from(columns)) as u32, (unit % u64::from(columns)) as u32);
            if number % CHECK_ROWS == 0 && first == 0 {
                check()?;
            }
            let some = first..columns.min(first + (end - unit).min(columns.into()) as u32);
            unit += some.len() as u64;
            let mut row = blocks.row(&units, number);
            let read = match &mut pass {
                Pass::FirstDc(pass) => pass.read(&mut bits, &units, &mut row, some),
                Pass::RefineDc => {
                    refine_dc(&mut bits, &units, &mut row, some, scan.low);
                    Some(())
                }
                Pass::First(pass) => pass.read(&mut bits, row, some),
                Pass::Refine(pass) => pass.read(&mut bits, row, some),
            };
            read.ok_or(Stop::Unusual)?;
        }
        // Up to seven bits fill the last byte.
        let unused = (segment.bytes.len() * 8).checked_sub(bits.position());
        let is_restart = |marker: u8| marker == 0xd0 + restarts % 8;
        // `Script` found the marker after the scan.
        let is_followed =
            segment.marker.is_some_and(|marker| if unit < total { is_restart(marker) } else { !is_rst(marker) });
        if unused.is_none_or(|bits| bits >= 8) || !is_followed {
            return Err(Stop::Unusual);
        }
        restarts = (restarts + 1) % 8;
    }
    Ok(())
}

fn is_rst(marker: u8) -> bool {
    (0xd0..=0xd7).contains(&marker)
}
