//! The reader of seek indexes. Even with a forged index with a correct checksum, a crop is pixels or an error.

use feedline_codec::SeekIndex;

use crate::pictures::{CropRequest, SEEKABLE, files};

const CHECKSUM_BYTES: usize = 8;

/// Input: a request and the content of an index. Uses it for files that may not belong to it.
pub fn run(data: &[u8]) {
    let (request, content) = data.split_at(data.len().min(CropRequest::BYTES));
    let Ok(index) = SeekIndex::from_bytes(&SeekIndex::forged(content)) else { return };
    assert_eq!(SeekIndex::from_bytes(&index.to_bytes()).as_ref(), Ok(&index));
    let file = &SEEKABLE[content.len() % SEEKABLE.len()];
    for file in [file, &SEEKABLE[0]] {
        index.fits(file);
        CropRequest::of(request).rows(file, Some(&index), &index.header());
        CropRequest::of(request).trim(file, &index);
    }
}

/// The indexes of all files that have one.
pub fn seeds() -> Vec<Vec<u8>> {
    let indexes = files().into_iter().filter_map(|file| Some(SeekIndex::build(&file).ok()?.to_bytes()));
    indexes.map(|bytes| [&[30, 200, 20, 220, 0], &bytes[..bytes.len() - CHECKSUM_BYTES]].concat()).collect()
}
