//! The reader of seek indexes: whatever somebody wrote who knows the checksum, a crop is pixels or an error.

use feedline_codec::SeekIndex;

use crate::pictures::{SEEKABLE, Wish, files};

const CHECKSUM_BYTES: usize = 8;

/// Takes a wish and the content of an index, and uses it for a file that may be another.
pub fn run(data: &[u8]) {
    let (wish, content) = data.split_at(data.len().min(Wish::BYTES));
    let Ok(index) = SeekIndex::from_bytes(&SeekIndex::forged(content)) else { return };
    assert_eq!(SeekIndex::from_bytes(&index.to_bytes()).as_ref(), Ok(&index));
    let file = &SEEKABLE[content.len() % SEEKABLE.len()];
    for file in [file, &SEEKABLE[0]] {
        index.fits(file);
        Wish::of(wish).rows(file, Some(&index), &index.header());
        Wish::of(wish).trim(file, &index);
    }
}

/// The indexes of all files that have one.
pub fn seeds() -> Vec<Vec<u8>> {
    let indexes = files().into_iter().filter_map(|file| Some(SeekIndex::build(&file).ok()?.to_bytes()));
    indexes.map(|bytes| [&[30, 200, 20, 220, 0], &bytes[..bytes.len() - CHECKSUM_BYTES]].concat()).collect()
}
