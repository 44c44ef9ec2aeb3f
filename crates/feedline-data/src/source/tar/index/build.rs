//! Builds the index of a shard, sample by sample.

use std::collections::HashMap;
use std::ops::Range;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::super::identity::Identity;
use super::super::names::field_of;
use super::super::walk::BLOCK;
use super::entry::{FieldEntry, IndexEntry};
use super::head::{Ends, IndexHead, ends_hash, headers_hash};
use crate::store::{Object, StoreError};

/// Upper limit of a field's name in bytes.
const MAX_FIELD_NAME_BYTES: usize = 255;
/// Entries are smaller than their shard, except for very small shards.
const SLACK_BYTES: u64 = 1 << 20;

/// The facts about a sample that an index stores.
#[derive(Debug)]
pub(crate) struct SampleFacts {
    /// Its key.
    pub key: String,
    /// Its class, if it is an integer.
    pub label: Option<i64>,
    /// Its members, in order.
    pub members: Vec<MemberFacts>,
}

/// The facts about a member that an index stores.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemberFacts {
    /// The part of its name after the first dot, in lower case.
    pub extension: String,
    /// Its byte range in the shard.
    pub data: Range<u64>,
    /// The stored width of a picture. 0 if unknown.
    pub width: u32,
    /// The stored height of a picture. 0 if unknown.
    pub height: u32,
    /// The seek index of a picture.
    pub record: Vec<u8>,
}

/// An index under construction.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    entries: Vec<IndexEntry>,
    /// Keys and records without checksums, which depend on the shard as a whole.
    records: Vec<u8>,
    parts: Vec<ChecksumPart>,
    fields: Vec<(String, u64)>,
    numbers: HashMap<String, usize>,
    identity: Identity,
    labels: u64,
    last_data: Range<u64>,
}

/// A part of `records` with a checksum of its own.
#[derive(Debug)]
struct ChecksumPart {
    end: usize,
    sample: u64,
}

/// Bytes of the checksum after each part.
pub(super) const CHECKSUM_BYTES: u64 = 8;

impl Builder {
    /// Number of samples so far.
    pub(crate) fn samples(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Adds a sample. The error describes its problem.
    pub(crate) fn push(&mut self, sample: SampleFacts) -> Result<(), String> {
        let SampleFacts { key, label, members } = sample;
        let number = self.samples();
        let mut entry = IndexEntry { label, ..IndexEntry::default() };
        let mut extensions = Vec::with_capacity(members.len());
        for MemberFacts { extension, data, width, height, record } in members {
            let field = self.field(&extension, &extensions, &key)?;
            extensions.push((field, extension));
            self.fields[field].1 += 1;
            // A reader rejects entries with a larger record, so a record that is too large is left out here.
            let has_record = FieldEntry::can_have(record.len() as u64 + CHECKSUM_BYTES, data.end - data.start);
            let record = self.part(if has_record { &record } else { &[] }, number);
            // The last member in the file, whatever the order of the fields. `finish` hashes its header.
            if data.end >= self.last_data.end {
                self.last_data = data.clone();
            }
            entry.fields.push((field, FieldEntry { data, width, height, record }));
        }
        // Both lists in the order of the field numbers, so that extension `i` belongs to field `i` of the entry.
        entry.fields.sort_unstable_by_key(|(field, _)| *field);
        extensions.sort_unstable();
        // Names record: length of the key (4 bytes), key, then length (4 bytes) and text of each extension.
        let mut names = (key.len() as u32).to_le_bytes().to_vec();
        names.extend(key.as_bytes());
        for (_, extension) in &extensions {
            names.extend((extension.len() as u32).to_le_bytes());
            names.extend(extension.as_bytes());
        }
        entry.names = self.part(&names, number);
        self.labels += u64::from(label.is_some());
        self.identity.push(&self.identity_of(&key, &entry));
        self.entries.push(entry);
        Ok(())
    }

    /// The field number of a member: by its field name, or by its extension if the sample already has that field.
    fn field(&mut self, extension: &str, present: &[(usize, String)], key: &str) -> Result<usize, String> {
        let is_taken = |number: usize| present.iter().any(|(other, _)| *other == number);
        let twice = || format!("has two members with key {key:?} and extension {extension:?}");
        if present.iter().any(|(_, other)| *other == extension) {
            return Err(twice());
        }
        let mut name = field_of(extension);
        if self.numbers.get(&name).is_some_and(|&number| is_taken(number)) {
            // `a.jpg` and `a.png` both mean the field `image`. The second one is called by its extension, `png`.
            extension.clone_into(&mut name);
        }
        match self.numbers.get(&name) {
            Some(&number) if is_taken(number) => return Err(twice()),
            Some(&number) => return Ok(number),
            None => {}
        }
        let number = self.fields.len();
        if number == IndexEntry::MAX_FIELDS || name.len() > MAX_FIELD_NAME_BYTES {
            return Err(format!(
                "has more than {} kinds of members, or one with too long an extension: {extension:?}; the extension is the \
                 part of a name after its first dot",
                IndexEntry::MAX_FIELDS
            ));
        }
        self.fields.push((name.clone(), 0));
        self.numbers.insert(name, number);
        Ok(number)
    }

    /// Appends bytes with a checksum. Returns their range, including the checksum.
    fn part(&mut self, bytes: &[u8], sample: u64) -> Range<u64> {
        if bytes.is_empty() {
            return 0..0;
        }
        // Checksums are added when the file is written, so earlier parts shift this one by 8 bytes each.
        let start = self.records.len() as u64 + self.parts.len() as u64 * CHECKSUM_BYTES;
        self.records.extend(bytes);
        self.parts.push(ChecksumPart { end: self.records.len(), sample });
        start..start + bytes.len() as u64 + CHECKSUM_BYTES
    }

    fn identity_of(&self, key: &str, entry: &IndexEntry) -> Vec<u8> {
        // Field numbers depend on the order in which a shard first uses them, so the identity uses sorted names.
        let mut fields: Vec<&str> = entry.fields.iter().map(|(number, _)| self.fields[*number].0.as_str()).collect();
        fields.sort_unstable();
        let mut text = key.as_bytes().to_vec();
        for field in fields {
            text.push(0);
            text.extend(field.as_bytes());
        }
        text.push(0);
        text.extend(entry.label.map(i64::to_le_bytes).iter().flatten());
        text
    }

    /// The finished index of `shard`.
    pub(crate) fn finish(self, shard: &dyn Object, classes: &[String]) -> Result<Vec<u8>, StoreError> {
        let table_bytes = self.samples().saturating_mul(IndexEntry::bytes(self.fields.len()) as u64);
        // An entry has room for every field of the shard. Thousands of samples with hundreds of rare fields would fill the disk.
        if table_bytes > shard.len().saturating_add(SLACK_BYTES) {
            let problem = format!(
                "has {} kinds of members, but each sample has few of them, so its index would be larger than the shard",
                self.fields.len()
            );
            return Err(StoreError::Content { path: shard.address(), problem });
        }
        let first = self.entries.first().and_then(IndexEntry::first_header).unwrap_or_default();
        // A tar header is the block before its data, and data is padded to whole blocks.
        let last = self.last_data.start.saturating_sub(BLOCK);
        let after = self.last_data.end.next_multiple_of(BLOCK);
        let hashed = IndexHead::hashed_samples(self.samples());
        let places = hashed.map(|sample| Ok(self.entries[sample as usize].first_header().unwrap_or_default()));
        let classes =
            if classes.is_empty() { Vec::new() } else { serde_json::to_vec(classes).expect("names are plain data") };
        let mut head = IndexHead {
            shard_bytes: shard.len(),
            modified_nanoseconds: shard.modified_nanoseconds(),
            ends: Ends { first, last, after, hash: ends_hash(shard, first, last, after)? },
            headers_hash: headers_hash(shard, places)?,
            samples: self.samples(),
            identity: self.identity,
            labels: self.labels,
            fields: self.fields,
            records_at: 0,
            classes_at: 0,
            classes_hash: (!classes.is_empty()).then(|| xxh3_64(&classes)),
            index_bytes: 0,
            entries_at: 0,
        };
        let records_bytes = self.records.len() as u64 + self.parts.len() as u64 * CHECKSUM_BYTES;
        let mut bytes = head.write(records_bytes, classes.len() as u64);
        for (number, entry) in self.entries.iter().enumerate() {
            entry.write(head.fields.len(), head.salt(number as u64), &mut bytes);
        }
        let mut start = 0;
        for ChecksumPart { end, sample } in self.parts {
            let content = &self.records[start..end];
            bytes.extend(content);
            bytes.extend(xxh3_64_with_seed(content, head.salt(sample)).to_le_bytes());
            start = end;
        }
        bytes.extend(classes);
        Ok(bytes)
    }
}
