//! Repairs the checksums of any bytes, as an attacker could. For tests of the checks that follow the checksums.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::entry::IndexEntry;
use super::head::{IndexHead, whole_bytes};

/// Later entries are left unchanged.
const MAX_ENTRIES: u64 = 1000;
const CHECKSUM_BYTES: usize = 8;

/// The bytes with valid checksums of head, entries, names and records, as far as these can be found.
pub(crate) fn forged(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let Some(head_bytes) = whole_bytes(&bytes) else { return bytes };
    sign(&mut bytes, 0..head_bytes, 0);
    let Some(head) = bytes.get(..head_bytes as usize).and_then(IndexHead::parse) else { return bytes };
    let len = IndexEntry::bytes(head.fields.len()) as u64;
    for sample in 0..head.samples.min(MAX_ENTRIES) {
        let start = head.entries_at + sample * len;
        let salt = head.salt(sample);
        sign(&mut bytes, start..start + len, salt);
        let Some(content) = bytes.get(start as usize..(start + len) as usize) else { return bytes };
        let Some(entry) = IndexEntry::parse(content, salt, u64::MAX - 1, u64::MAX) else { continue };
        for part in entry.fields.into_iter().map(|(_, field)| field.record).chain([entry.names]) {
            let start = head.records_at.saturating_add(part.start);
            sign(&mut bytes, start..head.records_at.saturating_add(part.end), salt);
        }
    }
    bytes
}

/// Writes the checksum of a range into its end. Skips ranges outside the bytes.
fn sign(bytes: &mut [u8], range: Range<u64>, salt: u64) {
    let Some(signed) = bytes.get_mut(range.start as usize..range.end as usize) else { return };
    let Some((content, checksum)) = signed.split_last_chunk_mut::<CHECKSUM_BYTES>() else { return };
    *checksum = xxh3_64_with_seed(content, salt).to_le_bytes();
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::super::listing::list;
    use super::super::super::memory::MemoryObject;
    use super::super::Index;
    use super::*;

    #[test]
    fn an_intact_index_is_unchanged_and_a_changed_entry_becomes_valid() {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(3);
        builder.append_data(&mut header, "a.jpg", b"one".as_slice()).unwrap();
        let shard = MemoryObject::new("x.tar".to_owned(), builder.into_inner().unwrap());
        let whole = list(&shard).unwrap();
        assert_eq!(forged(&whole), whole);

        let open = |bytes: &[u8]| {
            let object = Arc::new(MemoryObject::new("x.tar.index".to_owned(), bytes.to_vec()));
            let head = Arc::new(IndexHead::read(&*object).unwrap().unwrap());
            Index { object, head }
        };
        let mut changed = whole.clone();
        let label = open(&whole).head.entries_at as usize;
        changed[label + 8] = 1;
        assert!(open(&changed).entry(0).is_err());
        assert_eq!(open(&forged(&changed)).entry(0).unwrap().label, Some(0));
        assert_eq!(forged(b"no index"), b"no index");
    }
}
