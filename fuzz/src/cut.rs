//! Cuts: an index over a file that was changed since, in any of its bytes, gives pixels or an error, and a
//! trimmed picture that does, or an error.

use std::sync::LazyLock;

use feedline_codec::{SeekIndex, Trimmed};

use crate::pictures::{SEEKABLE, Wish};

static INDEXES: LazyLock<Vec<SeekIndex>> =
    LazyLock::new(|| SEEKABLE.iter().map(|file| SeekIndex::build(file).expect("the files have an index")).collect());

/// Takes a wish, the number of a file, how much of it is left, and changes: two bytes of place and one of value.
pub fn run(data: &[u8]) {
    let (wish, rest) = data.split_at(data.len().min(Wish::BYTES));
    let Some((&[number, left], changes)) = rest.split_first_chunk() else { return };
    let number = usize::from(number) % SEEKABLE.len();
    let mut file = SEEKABLE[number].clone();
    for &[high, low, value] in changes.as_chunks().0 {
        let place = usize::from(u16::from_be_bytes([high, low])) % file.len();
        file[place] ^= value;
    }
    file.truncate(file.len() * (256 - usize::from(left)) / 256);
    let index = &INDEXES[number];
    index.fits(&file);
    Wish::of(wish).rows(&file, Some(index), &index.header());
    if let Some(trimmed) = Wish::of(wish).trim(&file, index) {
        Trimmed::read(&trimmed).expect("what is written can be read");
        Wish::of(wish).trimmed_rows(&trimmed);
    }
}

/// Each file with a few changes.
pub fn seeds() -> Vec<Vec<u8>> {
    let wish = [40, 220, 10, 200, 0];
    let seed = |number: usize| {
        let middle = (SEEKABLE[number].len() as u16 * 3 / 4).to_be_bytes();
        [wish.as_slice(), &[number as u8, 0], &middle, &[1, middle[0], middle[1] ^ 3, 0x80]].concat()
    };
    (0..SEEKABLE.len()).map(seed).collect()
}
