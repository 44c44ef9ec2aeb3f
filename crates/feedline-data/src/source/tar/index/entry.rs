//! The entry of a sample. All entries have the same length, so an entry is found by its number.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::super::walk::BLOCK;

/// Label, whether there is a label, range of the key's record.
const FIXED_BYTES: usize = 8 + 4 + 8 + 4;
/// Data range, width and height, record range of one field.
const FIELD_BYTES: usize = 8 + 8 + 4 + 4 + 8 + 4;
const CHECKSUM_BYTES: usize = 8;
/// Upper limit of a seek index, unless the picture itself is larger.
const SHORT_RECORD_BYTES: u64 = 64 << 10;
/// Stands in place of the length if the sample lacks the field. No real length is that large.
const NOT_THERE: u64 = u64::MAX;

/// Where the parts of one sample are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// The class, if it is an integer.
    pub label: Option<i64>,
    /// The range of key and extensions in the records.
    pub names: Range<u64>,
    /// Its fields by their number in the shard, ascending.
    pub fields: Vec<(usize, FieldEntry)>,
}

/// Where one field of a sample is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldEntry {
    /// Its byte range in the shard.
    pub data: Range<u64>,
    /// The stored width of a picture. 0 if unknown.
    pub width: u32,
    /// The stored height of a picture. 0 if unknown.
    pub height: u32,
    /// The range of the picture's seek index in the records, including the checksum. Empty if there is none.
    pub record: Range<u64>,
}

impl FieldEntry {
    /// Whether a seek index of this length is plausible for a picture of this length.
    pub(crate) fn can_have(record_bytes: u64, data_bytes: u64) -> bool {
        record_bytes <= data_bytes.max(SHORT_RECORD_BYTES)
    }
}

impl IndexEntry {
    /// Upper limit of fields in a shard.
    pub(crate) const MAX_FIELDS: usize = 255;

    /// Bytes of an entry, for this number of fields.
    pub(crate) fn bytes(fields: usize) -> usize {
        FIXED_BYTES + fields * FIELD_BYTES + CHECKSUM_BYTES
    }

    /// The field with this number.
    pub(crate) fn field(&self, number: usize) -> Option<&FieldEntry> {
        let place = self.fields.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&self.fields[place].1)
    }

    /// The start of the first field's header.
    pub(crate) fn first_header(&self) -> Option<u64> {
        self.fields.first().and_then(|(_, field)| field.data.start.checked_sub(BLOCK))
    }

    /// Appends the entry to `target`.
    pub(crate) fn write(&self, fields: usize, salt: u64, target: &mut Vec<u8>) {
        let start = target.len();
        // Layout: label 8, has label 4, names start 8 and length 4; per field data 16, width 4, height 4, record 12; checksum 8.
        target.extend(self.label.unwrap_or_default().to_le_bytes());
        target.extend(u32::from(self.label.is_some()).to_le_bytes());
        write_range(&self.names, target);
        for number in 0..fields {
            let absent = FieldEntry::default();
            let field = self.field(number);
            let FieldEntry { data, width, height, record } = field.unwrap_or(&absent);
            target.extend(data.start.to_le_bytes());
            target.extend(field.map_or(NOT_THERE, |_| data.end - data.start).to_le_bytes());
            target.extend(width.to_le_bytes());
            target.extend(height.to_le_bytes());
            write_range(record, target);
        }
        let checksum = xxh3_64_with_seed(&target[start..], salt);
        target.extend(checksum.to_le_bytes());
    }

    /// Parses an entry. Its data must lie inside `shard_bytes`, its records inside `records_bytes`.
    pub(crate) fn parse(bytes: &[u8], salt: u64, shard_bytes: u64, records_bytes: u64) -> Option<Self> {
        let (content, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
        if xxh3_64_with_seed(content, salt) != u64::from_le_bytes(*checksum) {
            return None;
        }
        let mut rest = content;
        let label = i64::from_le_bytes(*take(&mut rest)?);
        let has_label = u32::from_le_bytes(*take(&mut rest)?) == 1;
        let names = range(u64::from_le_bytes(*take(&mut rest)?), parse_len(&mut rest)?, records_bytes)?;
        let mut fields = Vec::new();
        // The caller read exactly one entry of the shard's fields, so the length of the rest gives their number.
        for number in 0..rest.len() / FIELD_BYTES {
            let (start, len) = (u64::from_le_bytes(*take(&mut rest)?), u64::from_le_bytes(*take(&mut rest)?));
            let (width, height) = (u32::from_le_bytes(*take(&mut rest)?), u32::from_le_bytes(*take(&mut rest)?));
            let record = range(u64::from_le_bytes(*take(&mut rest)?), parse_len(&mut rest)?, records_bytes)?;
            // Before a record is read, so that a forged entry cannot make a reader allocate much.
            if !FieldEntry::can_have(record.end - record.start, len) {
                return None;
            }
            if len != NOT_THERE {
                fields.push((number, FieldEntry { data: range(start, len, shard_bytes)?, width, height, record }));
            }
        }
        Some(Self { label: has_label.then_some(label), names, fields })
    }
}

fn write_range(range: &Range<u64>, target: &mut Vec<u8>) {
    target.extend(range.start.to_le_bytes());
    target.extend(((range.end - range.start) as u32).to_le_bytes());
}

fn parse_len(rest: &mut &[u8]) -> Option<u64> {
    Some(u64::from(u32::from_le_bytes(*take(rest)?)))
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(taken)
}

/// The range `start..start + len`, if it ends at or before `limit`.
fn range(start: u64, len: u64, limit: u64) -> Option<Range<u64>> {
    let end = start.checked_add(len).filter(|&end| end <= limit)?;
    Some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> IndexEntry {
        let field = FieldEntry { data: 512..700, width: 30, height: 20, record: 9..77 };
        IndexEntry { label: Some(-3), names: 0..9, fields: vec![(1, field)] }
    }

    fn written(entry: &IndexEntry) -> Vec<u8> {
        let mut bytes = Vec::new();
        entry.write(2, 5, &mut bytes);
        assert_eq!(bytes.len(), IndexEntry::bytes(2));
        bytes
    }

    #[test]
    fn an_entry_written_and_read_is_the_same() {
        let bytes = written(&entry());
        assert_eq!(IndexEntry::parse(&bytes, 5, 700, 77), Some(entry()));
        assert_eq!(IndexEntry::parse(&bytes, 6, 700, 77), None, "the entry of another sample");
        let none = IndexEntry { label: None, ..entry() };
        assert_eq!(IndexEntry::parse(&written(&none), 5, 700, 77), Some(none));
    }

    #[test]
    fn entries_that_reach_outside_are_refused_even_if_the_checksum_is_right() {
        let bytes = written(&entry());
        assert_eq!(IndexEntry::parse(&bytes, 5, 699, 77), None);
        assert_eq!(IndexEntry::parse(&bytes, 5, 700, 76), None);
        let mut far = entry();
        far.fields[0].1.data = u64::MAX - 2..u64::MAX;
        assert_eq!(IndexEntry::parse(&written(&far), 5, 700, 77), None);
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let bytes = written(&entry());
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x10;
            assert_eq!(IndexEntry::parse(&damaged, 5, 700, 77), None, "byte {place}");
            assert_eq!(IndexEntry::parse(&bytes[..place], 5, 700, 77), None, "cut at {place}");
        }
    }
}
