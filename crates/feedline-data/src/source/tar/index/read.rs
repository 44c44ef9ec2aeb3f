//! Reads the index of a shard, part by part.

use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::build::CHECKSUM_BYTES;
use super::entry::IndexEntry;
use super::head::{IndexHead, headers_hash};
use crate::store::{BufferSource as _, Object, StoreError};

/// Upper limit of the names of classes in bytes.
const MAX_CLASSES_BYTES: u64 = 64 << 20;
/// Upper limit of key and extensions in bytes. A builder never writes more.
const MAX_NAME_RECORD_BYTES: u64 = 1 << 20;

/// An open index.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    /// The file.
    pub object: Arc<dyn Object>,
    /// Its head.
    pub head: Arc<IndexHead>,
}

/// Key and extensions of a sample.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NameRecord {
    /// The key.
    pub key: String,
    /// The extension of each field of the sample, in the order of the shard's fields.
    pub extensions: Vec<String>,
}

/// Why a part of an index could not be read.
#[derive(Debug)]
pub(crate) enum IndexError {
    /// The bytes were changed after the index was written.
    Damaged,
    /// It could not be read.
    Store(StoreError),
}

impl From<StoreError> for IndexError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Index {
    /// The entry of a sample.
    pub(crate) fn entry(&self, sample: u64) -> Result<IndexEntry, IndexError> {
        let head = &self.head;
        // Beyond the table are keys and records, which are no entries.
        if sample >= head.samples {
            return Err(IndexError::Damaged);
        }
        let len = IndexEntry::bytes(head.fields.len());
        let mut bytes = vec![0; len];
        self.object.read_at(head.entries_at + sample * len as u64, &mut bytes)?;
        let records_bytes = head.classes_at - head.records_at;
        IndexEntry::parse(&bytes, head.salt(sample), head.shard_bytes, records_bytes).ok_or(IndexError::Damaged)
    }

    /// Key and extensions of a sample.
    pub(crate) fn names(&self, sample: u64, entry: &IndexEntry) -> Result<NameRecord, IndexError> {
        if entry.names.end - entry.names.start > MAX_NAME_RECORD_BYTES {
            return Err(IndexError::Damaged);
        }
        let mut bytes = Vec::new();
        self.part(sample, &entry.names, &mut bytes)?;
        let mut rest = bytes.as_slice();
        let mut text = || {
            let (len, after) = rest.split_first_chunk::<4>()?;
            let (text, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            rest = after;
            String::from_utf8(text.to_vec()).ok()
        };
        let key = text().ok_or(IndexError::Damaged)?;
        let extensions: Option<Vec<String>> = entry.fields.iter().map(|_| text()).collect();
        Ok(NameRecord { key, extensions: extensions.ok_or(IndexError::Damaged)? })
    }

    /// Reads a part of the records into `target`, without its checksum.
    pub(crate) fn part(&self, sample: u64, place: &Range<u64>, target: &mut Vec<u8>) -> Result<(), IndexError> {
        let len = place.end - place.start;
        if len < CHECKSUM_BYTES {
            return Err(IndexError::Damaged);
        }
        // `IndexEntry::parse` checked that the length lies inside the index.
        let room = target.room(len as usize).map_err(StoreError::from)?;
        self.object.read_at(self.head.records_at + place.start, room)?;
        // The last 8 bytes are the checksum. Its seed is the sample's salt, so a record copied from another sample is noticed.
        let (content, checksum) = target.split_last_chunk::<8>().ok_or(IndexError::Damaged)?;
        if xxh3_64_with_seed(content, self.head.salt(sample)) != u64::from_le_bytes(*checksum) {
            return Err(IndexError::Damaged);
        }
        target.truncate((len - CHECKSUM_BYTES) as usize);
        Ok(())
    }

    /// The names of the classes. `None` if they are damaged.
    pub(crate) fn classes(&self) -> Result<Option<Vec<String>>, StoreError> {
        let Some(hash) = self.head.classes_hash else { return Ok(Some(Vec::new())) };
        let len = self.head.index_bytes - self.head.classes_at;
        if len > MAX_CLASSES_BYTES {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        self.object.read_at(self.head.classes_at, bytes.room(len as usize)?)?;
        Ok(if xxh3_64(&bytes) == hash { serde_json::from_slice(&bytes).ok() } else { None })
    }

    /// Whether headers spread over the shard still have the indexed hash.
    pub(crate) fn fits(&self, shard: &dyn Object) -> Result<bool, IndexError> {
        // `headers_hash` takes an iterator of store errors only, so a damaged entry is noted here and ends the iteration.
        let mut damaged = None;
        let places = IndexHead::hashed_samples(self.head.samples).map_while(|sample| match self.entry(sample) {
            Ok(entry) => Some(Ok(entry.first_header().unwrap_or_default())),
            Err(error) => {
                damaged = Some(error);
                None
            }
        });
        let hash = headers_hash(shard, places)?;
        damaged.map_or(Ok(hash == self.head.headers_hash), Err)
    }
}
