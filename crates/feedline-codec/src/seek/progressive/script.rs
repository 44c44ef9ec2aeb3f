//! The scans of a progressive file, found before any of them is decoded.
//!
//! In: a whole file. Out: its header, and for each scan what it contains, its codes and the place of its data. Always true: together
//! the scans contain all bits of all coefficients, each once and in the order of the standard.

use crate::seek::frame::{JpegFrame, PROGRESSIVE, Segment};
use crate::seek::huffman::Code;

/// Upper limit of scans, as in shim.c.
const MAX_SCANS: usize = 500;
/// Upper limit of `ScanPlan::low` (T.81, G.1.1.1.1).
const MAX_LOW: u8 = 13;

/// What a file consists of.
#[derive(Debug)]
pub(super) struct Script {
    /// Its codes are those of the last scan.
    pub frame: JpegFrame,
    pub scans: Vec<ScanPlan>,
}

/// One scan.
#[derive(Debug)]
pub(super) struct ScanPlan {
    /// Its components, by number.
    pub components: Vec<usize>,
    pub kind: ScanKind,
    /// The lowest bit of the coefficients that it contains.
    pub low: u8,
    /// Units between restarts; 0 without.
    pub restart_interval: u32,
    /// Where its data begin in the file.
    pub data: usize,
}

/// Which coefficients a scan contains, with the codes for them.
#[derive(Debug)]
pub(super) enum ScanKind {
    /// All bits of DC coefficients down to `low`. A code for each component.
    FirstDc(Vec<Code>),
    /// Bit `low` of DC coefficients.
    RefineDc,
    /// All bits down to `low` of AC coefficients `first` to `last`, in zigzag order.
    First { first: u8, last: u8, code: Code },
    /// Bit `low` of AC coefficients `first` to `last`.
    Refine { first: u8, last: u8, code: Code },
}

/// For each component and coefficient: the lowest bit that the scans so far contain.
type Known = Vec<[Option<u8>; 64]>;

impl Script {
    /// Reads all headers. `None` if the file is not progressive, not complete, or unusual.
    pub(super) fn read(file: &[u8]) -> Option<Self> {
        let mut frame = JpegFrame::empty();
        let mut scans = Vec::new();
        let mut known = Known::new();
        let mut at = if file.starts_with(&[0xff, 0xd8]) { 2 } else { return None };
        // The end of the image.
        while file.get(at..at + 2)? != [0xff, 0xd9] {
            let Segment { marker, content, end } = Segment::read(file, at).ok()?;
            at = end;
            match marker {
                PROGRESSIVE if frame.components.is_empty() => frame.read_size(marker, content)?,
                0xda => {
                    if scans.is_empty() {
                        frame.check_layout().ok()?;
                        known = vec![[None; 64]; frame.components.len()];
                    }
                    if scans.len() == MAX_SCANS {
                        return None;
                    }
                    scans.push(ScanPlan::read(&frame, content, at, &mut known)?);
                    at = end_of_data(file, at)?;
                }
                // libjpeg uses the quantisers that are there when a component begins.
                0xdb if !scans.is_empty() => return None,
                0xc4 | 0xdb | 0xdd | 0xe0..=0xef | 0xfe => frame.read_table(marker, content).ok()?,
                _ => return None,
            }
        }
        // libjpeg would smooth a picture whose scans are not complete.
        let is_complete = !scans.is_empty() && known.iter().flatten().all(|&low| low == Some(0));
        is_complete.then_some(Self { frame, scans })
    }
}

impl ScanPlan {
    fn read(frame: &JpegFrame, header: &[u8], data: usize, known: &mut Known) -> Option<Self> {
        let (&count, rest) = header.split_first()?;
        let (tables, &[first, last, bits]) = rest.split_last_chunk::<3>()?;
        if tables.len() != usize::from(count) * 2 || !(1..=4).contains(&count) {
            return None;
        }
        let (high, low) = (bits >> 4, bits & 15);
        let mut components = Vec::new();
        let mut selected = Vec::new();
        for &[id, places] in tables.as_chunks().0 {
            let component = frame.components.iter().position(|component| component.id == id)?;
            if components.last().is_some_and(|&before| before >= component) {
                return None;
            }
            components.push(component);
            selected.push((usize::from(places >> 4), usize::from(places & 15)));
        }
        let is_dc = first == 0;
        if last > 63 || first > last || (is_dc && last != 0) || (!is_dc && count != 1) || low > MAX_LOW {
            return None;
        }
        let is_first = high == 0;
        for &component in &components {
            // AC coefficients come after the first scan of DC.
            if !is_dc && known[component][0].is_none() {
                return None;
            }
            for known in &mut known[component][usize::from(first)..=usize::from(last)] {
                // A scan that refines contains just the next bit.
                let is_next = if is_first { known.is_none() } else { *known == Some(high) && low + 1 == high };
                *known = is_next.then_some(Some(low))?;
            }
        }
        let dc_code = |&(dc, _): &(usize, usize)| frame.dc.get(dc)?.clone();
        let ac_code = || frame.ac.get(selected[0].1)?.clone();
        let kind = match (is_dc, is_first) {
            (true, true) => ScanKind::FirstDc(selected.iter().map(dc_code).collect::<Option<_>>()?),
            (true, false) => ScanKind::RefineDc,
            (false, true) => ScanKind::First { first, last, code: ac_code()? },
            (false, false) => ScanKind::Refine { first, last, code: ac_code()? },
        };
        Some(Self { components, kind, low, restart_interval: frame.restart_interval, data })
    }
}

/// The place of the marker after entropy-coded data.
fn end_of_data(file: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += memchr::memchr(0xff, file.get(at..)?)?;
        match file.get(at + 1)? {
            // A stuffed zero, or a restart.
            0 | 0xd0..=0xd7 => at += 2,
            _ => return Some(at),
        }
    }
}
