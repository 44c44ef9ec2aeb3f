//! Stamps: hashes that show whether stored bytes have changed.

use std::ops::Range;

use feedline_order::SampleId;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::Source;
use crate::store::{Object, StoreError};

/// A stamp of a part of an object: the object's length, its time of change, and the range.
pub fn stamp(object: &dyn Object, range: &Range<u64>) -> u64 {
    // A store without times gives 0. Then only a change of the length is noticed.
    let modified = object.modified_nanoseconds().unwrap_or_default().cast_unsigned();
    xxh3_64([object.len(), modified, range.start, range.end].map(u64::to_le_bytes).as_flattened())
}

/// A stamp of everything that is stored of a sample in these fields.
pub fn sample_stamp<'a>(
    source: &dyn Source,
    id: SampleId,
    fields: impl Iterator<Item = &'a str>,
) -> Result<u64, StoreError> {
    let mut stamps = Vec::new();
    for field in fields {
        if let Some((object, range)) = source.origin(id, field).open()? {
            stamps.push(stamp(&*object, &range).to_le_bytes());
        }
    }
    Ok(xxh3_64(stamps.as_flattened()))
}

/// A hash of the names of a source's samples, and of what it read when opening. Two machines with the same hash list the same
/// samples.
pub fn listing_hash(source: &dyn Source) -> u128 {
    xxh3_128([source.identity().to_le_bytes(), source.version().to_le_bytes()].as_flattened())
}
