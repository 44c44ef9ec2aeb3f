//! The head of an index: everything that opening a shard reads.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::super::identity::Identity;
use super::super::walk::BLOCK;
use super::entry::IndexEntry;
use crate::store::{Object, StoreError, read_ranges};

const MAGIC: &[u8; 8] = b"FLSHARD\n";
/// Changes whenever older programs would misread the file.
const VERSION: u32 = 1;
/// Magic, version and length.
const PREFIX_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 8;
/// Bytes to read first. Nearly every head fits.
const FIRST_READ_BYTES: u64 = 2 << 10;
/// Upper limit of a head.
const MAX_HEAD_BYTES: u64 = 1 << 20;
/// Number of headers to hash, evenly spread over the shard.
const HASHED_HEADERS: u64 = 64;

/// The facts about a shard as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IndexHead {
    /// Bytes of the shard.
    pub shard_bytes: u64,
    /// When the shard was last changed.
    pub modified_nanoseconds: Option<i64>,
    /// The first and the last header, and what follows the last member.
    pub ends: Ends,
    /// A hash of headers spread over the shard. It also makes checksums differ between shards.
    pub headers_hash: u64,
    /// Number of samples.
    pub samples: u64,
    /// A hash of keys, fields and labels, in order.
    pub identity: Identity,
    /// Number of samples whose class is an integer.
    pub labels: u64,
    /// The fields, each with the number of samples that have it.
    pub fields: Vec<(String, u64)>,
    /// The start of keys and records. Entries start after the head.
    pub records_at: u64,
    /// The start of the classes, which is the end of keys and records.
    pub classes_at: u64,
    /// A hash of the classes. `None` without classes.
    pub classes_hash: Option<u64>,
    /// Length of the index.
    pub index_bytes: u64,
    /// The start of the entries, known from the length of the head.
    #[serde(skip)]
    pub entries_at: u64,
}

/// Enough of a shard to notice most changes with three short reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ends {
    /// The start of the first member's header.
    pub first: u64,
    /// The start of the last member's header.
    pub last: u64,
    /// The start of the block after the last member.
    pub after: u64,
    /// A hash of these three blocks.
    pub hash: u64,
}

/// How well an index fits the current shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Freshness {
    /// It belongs to another shard.
    Stale,
    /// Length and ends match, but not the time: the shard was copied, or changed in its middle.
    Likely,
    /// Length and time match.
    Exact,
}

impl IndexHead {
    /// Reads the head of an index. `None` if it is not usable.
    pub(crate) fn read(index: &dyn Object) -> Result<Option<Self>, StoreError> {
        let mut bytes = vec![0; index.len().min(FIRST_READ_BYTES) as usize];
        // Most heads are complete after this read. A larger one is read again as a whole below.
        index.read_at(0, &mut bytes)?;
        let Some(len) = whole_bytes(&bytes).filter(|&len| len <= index.len().min(MAX_HEAD_BYTES)) else {
            return Ok(None);
        };
        if len > bytes.len() as u64 {
            bytes.resize(len as usize, 0);
            index.read_at(0, &mut bytes)?;
        }
        bytes.truncate(len as usize);
        Ok(Self::parse(&bytes).filter(|head| head.is_sound(index.len())))
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (content, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
        if xxh3_64(content) != u64::from_le_bytes(*checksum) {
            return None;
        }
        let mut head: Self = serde_json::from_slice(content.get(PREFIX_BYTES..)?).ok()?;
        head.entries_at = bytes.len() as u64;
        Some(head)
    }

    /// Whether lengths and places are consistent with each other and with the files.
    fn is_sound(&self, index_bytes: u64) -> bool {
        let entries_bytes = self.samples.checked_mul(IndexEntry::bytes(self.fields.len()) as u64);
        let records_at = entries_bytes.and_then(|bytes| bytes.checked_add(self.entries_at));
        // Checked arithmetic: the numbers may be forged.
        let lies_inside = |start: u64| start.checked_add(BLOCK).is_some_and(|end| end <= self.shard_bytes);
        self.index_bytes == index_bytes
            && records_at == Some(self.records_at)
            && self.records_at <= self.classes_at
            && self.classes_at <= index_bytes
            // Each sample has at least one member, and each member at least one header block.
            && self.samples <= self.shard_bytes / BLOCK
            && self.fields.len() <= IndexEntry::MAX_FIELDS
            && self.labels <= self.samples
            && self.fields.iter().all(|(_, samples)| *samples <= self.samples)
            && (self.samples == 0 || (lies_inside(self.ends.first) && lies_inside(self.ends.last)))
            && self.ends.after <= self.shard_bytes.next_multiple_of(BLOCK)
    }

    /// The head in its written form. Fills in the places of the parts.
    pub(crate) fn write(&mut self, records_bytes: u64, classes_bytes: u64) -> Vec<u8> {
        // The length of the text depends on the numbers in it, which depend on its length. A longer text never makes a number
        // smaller, so the numbers change in one direction only and the loop ends.
        loop {
            let mut bytes = MAGIC.to_vec();
            bytes.extend(VERSION.to_le_bytes());
            let text = serde_json::to_vec(self).expect("a head is plain data");
            bytes.extend((text.len() as u32).to_le_bytes());
            bytes.extend(text);
            bytes.extend(xxh3_64(&bytes).to_le_bytes());
            let before = self.clone();
            self.entries_at = bytes.len() as u64;
            self.records_at = self.entries_at + self.samples * IndexEntry::bytes(self.fields.len()) as u64;
            self.classes_at = self.records_at + records_bytes;
            self.index_bytes = self.classes_at + classes_bytes;
            if *self == before {
                return bytes;
            }
        }
    }

    /// The index `bytes` with the time of `copy`, a copy of its shard, so that [`Self::is_exact`] holds for that copy.
    pub(crate) fn rebound(&self, copy: &dyn Object, bytes: &[u8]) -> Vec<u8> {
        let mut head = Self { modified_nanoseconds: copy.modified_nanoseconds(), ..self.clone() };
        let mut copied = head.write(self.classes_at - self.records_at, self.index_bytes - self.classes_at);
        copied.extend_from_slice(bytes.get(self.entries_at as usize..).unwrap_or_default());
        copied
    }

    /// Whether length and time match the current shard.
    pub(crate) fn is_exact(&self, shard: &dyn Object) -> bool {
        // A store without times (`None`) is never exact.
        let is_same_time = self.modified_nanoseconds.is_some_and(|time| Some(time) == shard.modified_nanoseconds());
        is_same_time && self.shard_bytes == shard.len()
    }

    /// Compares with the current shard.
    pub(crate) fn freshness(&self, shard: &dyn Object) -> Result<Freshness, StoreError> {
        if self.shard_bytes != shard.len() {
            return Ok(Freshness::Stale);
        }
        if self.is_exact(shard) {
            return Ok(Freshness::Exact);
        }
        let Ends { first, last, after, hash } = self.ends;
        Ok(if ends_hash(shard, first, last, after)? == hash { Freshness::Likely } else { Freshness::Stale })
    }

    /// The salt of the checksum of part `number`.
    pub(crate) fn salt(&self, number: u64) -> u64 {
        // The multiplier is 2^64 divided by the golden ratio (Fibonacci hashing): neighbouring numbers get unrelated salts.
        self.headers_hash ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// The samples whose headers are hashed.
    pub(crate) fn hashed_samples(samples: u64) -> impl Iterator<Item = u64> {
        let count = HASHED_HEADERS.min(samples);
        // From the first sample to the last. `max(1)` is for a single sample, where the number is 0 anyway.
        (0..count).map(move |number| number * (samples - 1) / (count - 1).max(1))
    }
}

/// Length of a head including prefix and checksum, from its first bytes.
pub(super) fn whole_bytes(bytes: &[u8]) -> Option<u64> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (version, rest) = rest.split_first_chunk::<4>()?;
    let (len, _) = rest.split_first_chunk::<4>()?;
    let len = u64::from(u32::from_le_bytes(*len));
    (u32::from_le_bytes(*version) == VERSION).then_some(len + (PREFIX_BYTES + CHECKSUM_BYTES) as u64)
}

/// A hash of the first header, the last one, and what follows the last member.
pub(super) fn ends_hash(shard: &dyn Object, first: u64, last: u64, after: u64) -> Result<u64, StoreError> {
    // A block at the end of the file may be short or empty. The rest of its 512 bytes is hashed as zeros.
    let block = |start: u64| start..start + shard.len().saturating_sub(start).min(BLOCK);
    let mut blocks = [0; 3 * BLOCK as usize];
    let read = read_ranges(shard, &[first, last, after].map(block))?;
    for (bytes, block) in read.iter().zip(blocks.chunks_mut(BLOCK as usize)) {
        block[..bytes.len()].copy_from_slice(bytes);
    }
    Ok(xxh3_64(&blocks))
}

/// A hash of the headers at these places.
pub(super) fn headers_hash(
    shard: &dyn Object,
    places: impl Iterator<Item = Result<u64, StoreError>>,
) -> Result<u64, StoreError> {
    let places: Result<Vec<Range<u64>>, StoreError> =
        places.map(|place| place.map(|start| start..start.saturating_add(BLOCK))).collect();
    let mut hasher = Xxh3::new();
    for block in read_ranges(shard, &places?)? {
        hasher.update(&block);
    }
    Ok(hasher.digest())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_taken_from_the_first_to_the_last() {
        let of = |samples| IndexHead::hashed_samples(samples).collect::<Vec<_>>();
        assert_eq!((of(0), of(1), of(3)), (vec![], vec![0], vec![0, 1, 2]));
        let many = of(10_000);
        assert_eq!((many.len(), many[0], many[63]), (64, 0, 9999));
        assert!(many.is_sorted_by(|a, b| a < b));
    }
}
