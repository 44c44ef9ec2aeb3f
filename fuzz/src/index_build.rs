//! The builder of seek indexes: an index of any file is the same when it was written and read, says of the file what its
//! header says, and gives the very pixels that are decoded without it, or an error; so does what is trimmed by it.

use feedline_codec::{SeekIndex, read_header};

use crate::pictures::{Wish, files};

/// Takes a wish and a file.
pub fn run(data: &[u8]) {
    let (wish, file) = data.split_at(data.len().min(Wish::BYTES));
    let Ok(index) = SeekIndex::build(file) else { return };
    assert_eq!(SeekIndex::from_bytes(&index.to_bytes()).as_ref(), Ok(&index));
    let header = read_header(file).expect("a file with an index has a header");
    assert_eq!(index.header(), header);
    assert!(index.fits(file));
    let wish = Wish::of(wish);
    if let Some(pixels) = wish.rows(file, Some(&index), &header) {
        assert_eq!(Some(&pixels), wish.rows(file, None, &header).as_ref(), "{:?}", wish.crop(&header));
        if let Some(trimmed) = wish.trim(file, &index) {
            assert_eq!(Some(pixels), wish.trimmed_rows(&trimmed), "{:?} trimmed", wish.crop(&header));
        }
    }
}

/// Files behind different wishes.
pub fn seeds() -> Vec<Vec<u8>> {
    let wishes = [[0, 255, 0, 255, 0], [90, 160, 70, 200, 1], [10, 100, 100, 200, 20], [200, 255, 0, 30, 24]];
    files().iter().zip(wishes.iter().cycle()).map(|(file, wish)| [wish.as_slice(), file].concat()).collect()
}
