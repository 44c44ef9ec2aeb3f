//! The seek index of a JPEG: compact bytes, decoded on demand.
//!
//! In a row of MCUs the places grow almost linearly, and the predictors stay close to each other. So each row stores its lowest
//! values, and the differences from them in as few bits as possible. Any place can be found without reading the ones before it.

use super::frame::JpegFrame;
use super::packed::{FieldWriter, PackedReader, field, put_number, put_signed, width_of};
use super::walk::{COMPONENTS, NotSeekable, Predictors, Walk, WalkedScan};
use crate::error::BadIndex;
use crate::format::Format;
use crate::header::{Header, read_header};
use crate::orientation::Orientation;

/// Number of MCUs between two recorded places.
const GROUP_MCUS: u32 = 4;

/// Where the parts of a baseline JPEG begin in its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JpegIndex {
    pub(super) frame: JpegFrame,
    /// Where the scan begins in the file.
    pub(super) scan: u64,
    orientation: Orientation,
    rows: Vec<Row>,
    /// Differences from the lowest values, row by row.
    fields: Vec<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    /// The places of the first bit and after the last one, in bits.
    start: u64,
    end: u64,
    lowest_place: i64,
    place_width: u8,
    lowest: Predictors,
    widths: [u8; COMPONENTS],
    /// Where its fields begin, in bits.
    fields: usize,
}

impl Row {
    /// The place of an MCU if all MCUs of the row had the same length.
    fn expected(&self, mcu: u32, columns: u32) -> i64 {
        ((self.end - self.start) * u64::from(mcu) / u64::from(columns)) as i64
    }

    fn predictor_bits(&self) -> usize {
        self.widths.iter().map(|&width| usize::from(width)).sum()
    }

    /// Bits of its fields for `groups` groups: all places but the first, and all predictors.
    fn bits(&self, groups: usize) -> usize {
        (groups - 1) * usize::from(self.place_width) + groups * self.predictor_bits()
    }
}

impl JpegIndex {
    /// Walks a file.
    pub(super) fn build(file: &[u8]) -> Result<Self, NotSeekable> {
        let header = read_header(file).map_err(|_| NotSeekable("it has no header"))?;
        Self::of_walk(Self::walk(file)?, header.orientation)
    }

    /// A walk that can become an index.
    pub(super) fn walk(file: &[u8]) -> Result<Walk<'_>, NotSeekable> {
        Walk::open(file, GROUP_MCUS)
    }

    /// Finishes a walk.
    pub(super) fn of_walk(walk: Walk<'_>, orientation: Orientation) -> Result<Self, NotSeekable> {
        let scan = walk.scan as u64;
        let (frame, walked) = walk.finish()?;
        let mut this = Self { frame, scan, orientation, rows: Vec::new(), fields: Vec::new() };
        this.add_rows(&walked);
        Ok(this)
    }

    fn add_rows(&mut self, walked: &WalkedScan) {
        let groups = self.groups() as usize;
        let columns = self.frame.mcus().0;
        let components = self.frame.components.len();
        let mut writer = FieldWriter::default();
        let mut bits = 0;
        let rows = walked.starts.chunks_exact(groups).zip(walked.predictors.chunks_exact(groups)).zip(&walked.ends);
        for ((starts, predictors), &end) in rows {
            let mut row = Row { start: starts[0].into(), end: end.into(), fields: bits, ..Row::default() };
            let differences: Vec<i64> = (1..groups)
                .map(|group| i64::from(starts[group] - starts[0]) - row.expected(group as u32 * GROUP_MCUS, columns))
                .collect();
            // Frame of reference: the lowest difference is stored once, the others relative to it in `place_width` bits.
            row.lowest_place = differences.iter().copied().min().unwrap_or(0);
            let most = differences.iter().map(|difference| difference - row.lowest_place).max().unwrap_or(0);
            row.place_width = width_of(most.unsigned_abs()) as u8;
            for component in 0..components {
                let values = || predictors.iter().map(|predictors| predictors[component]);
                let lowest = values().min().unwrap_or(0);
                row.lowest[component] = lowest;
                let most = values().map(|value| i32::from(value) - i32::from(lowest)).max().unwrap_or(0);
                row.widths[component] = width_of(most.unsigned_abs().into()) as u8;
            }
            for difference in differences {
                writer.put((difference - row.lowest_place).unsigned_abs(), row.place_width.into());
            }
            for predictors in predictors {
                for ((&value, &lowest), &width) in predictors.iter().zip(&row.lowest).zip(&row.widths) {
                    writer.put((i32::from(value) - i32::from(lowest)).unsigned_abs().into(), width.into());
                }
            }
            bits += row.bits(groups);
            self.rows.push(row);
        }
        self.fields = writer.finish();
    }

    /// What it says of the picture.
    pub(super) fn header(&self) -> Header {
        let JpegFrame { width, height, .. } = self.frame;
        Header { format: Format::Jpeg, width, height, orientation: self.orientation, needs_whole: false }
    }

    /// Whether the header of the file is that of the indexed one. It cannot detect changes of the picture's data.
    pub(super) fn fits(&self, file: &[u8]) -> bool {
        JpegFrame::read(file).is_ok_and(|(frame, scan)| frame == self.frame && scan as u64 == self.scan)
    }

    /// Groups of MCUs in a row.
    pub(super) fn groups(&self) -> u32 {
        self.frame.mcus().0.div_ceil(GROUP_MCUS)
    }

    /// Number of MCUs in a group. The last group of a row may have fewer.
    pub(super) fn every() -> u32 {
        GROUP_MCUS
    }

    /// The place of a group's first bit. After the last group, the place after the row's last bit.
    pub(super) fn place(&self, row: u32, group: u32) -> Result<u64, BadIndex> {
        self.place_inside(row, group).ok_or(BadIndex("a place is out of range"))
    }

    fn place_inside(&self, row: u32, group: u32) -> Option<u64> {
        let found = self.rows.get(row as usize)?;
        if group == 0 {
            return Some(found.start);
        }
        if group >= self.groups() {
            return Some(found.end);
        }
        let at = found.fields + (group as usize - 1) * usize::from(found.place_width);
        let difference = field(&self.fields, at, found.place_width.into()) as i64;
        let expected = found.expected(group * GROUP_MCUS, self.frame.mcus().0);
        // Checked sums: an index may be forged.
        let place =
            found.start.checked_add_signed(expected.checked_add(found.lowest_place)?.checked_add(difference)?)?;
        (found.start..=found.end).contains(&place).then_some(place)
    }

    /// The predictors after a group, before a restart.
    pub(super) fn predictors_after(&self, row: u32, group: u32) -> Option<[i32; COMPONENTS]> {
        let found = self.rows.get(row as usize)?;
        let groups = self.groups() as usize;
        let first = found.fields + (groups - 1) * usize::from(found.place_width);
        let mut at = first + group as usize * found.predictor_bits();
        let mut predictors = [0; COMPONENTS];
        for (component, predictor) in predictors.iter_mut().enumerate() {
            let width = u32::from(found.widths[component]);
            *predictor = i32::from(found.lowest[component]) + field(&self.fields, at, width) as i32;
            at += width as usize;
        }
        Some(predictors)
    }

    /// Writes it as bytes.
    pub(super) fn pack(&self, out: &mut Vec<u8>) {
        out.push(self.orientation.exif());
        put_number(out, self.scan);
        self.frame.pack(out);
        let components = self.frame.components.len();
        let mut end = 0;
        for row in &self.rows {
            // Rows follow each other, so the gap to the end of the row before is a small number.
            put_number(out, row.start - end);
            put_number(out, row.end - row.start);
            put_signed(out, row.lowest_place);
            out.push(row.place_width);
            // A predictor has 15 bits, so four bits hold the width of its differences.
            out.extend(row.widths[..components].chunks(2).map(|pair| pair[0] | pair.get(1).unwrap_or(&0) << 4));
            row.lowest[..components].iter().for_each(|&lowest| put_signed(out, lowest.into()));
            end = row.end;
        }
        out.extend(&self.fields);
    }

    /// Reads what [`JpegIndex::pack`] wrote.
    pub(super) fn unpack(mut reader: PackedReader<'_>) -> Option<Self> {
        let [orientation] = *reader.array()?;
        let orientation = Orientation::from_exif(orientation.into())?;
        let scan = reader.number()?;
        let frame = JpegFrame::unpack(&mut reader)?;
        let components = frame.components.len();
        let mut this = Self { frame, scan, orientation, rows: Vec::new(), fields: Vec::new() };
        let groups = this.groups() as usize;
        let (mut end, mut bits) = (0_u64, 0);
        for _ in 0..this.frame.mcus().1 {
            let mut row = Row { fields: bits, ..Row::default() };
            row.start = end.checked_add(reader.number()?)?;
            row.end = row.start.checked_add(reader.number()?)?;
            row.lowest_place = reader.signed()?;
            [row.place_width] = *reader.array()?;
            let nibbles = reader.bytes(components.div_ceil(2))?;
            for component in 0..components {
                row.widths[component] = nibbles[component / 2] >> (4 * (component % 2)) & 15;
                row.lowest[component] = i16::try_from(reader.signed()?).ok()?;
            }
            if row.place_width > 32 || row.end > u64::from(u32::MAX) {
                return None;
            }
            end = row.end;
            bits += row.bits(groups);
            this.rows.push(row);
        }
        let fields = reader.rest();
        // With the exact length, `field` never reads past the end for a valid row and group.
        (fields.len() == bits.div_ceil(8)).then(|| this.fields = fields.to_vec())?;
        Some(this)
    }
}
