//! The reader of trimmed pictures: whatever somebody wrote who knows the checksum, a crop is pixels or an error.

use feedline_codec::{SeekIndex, Trimmed};

use crate::pictures::{Wish, files};

const CHECKSUM_BYTES: usize = 8;

/// Takes a wish and the content of a trimmed picture.
pub fn run(data: &[u8]) {
    let (wish, content) = data.split_at(data.len().min(Wish::BYTES));
    Wish::of(wish).trimmed_rows(&Trimmed::forged(content));
}

/// All files that have an index, trimmed for crops at several scales.
pub fn seeds() -> Vec<Vec<u8>> {
    let wishes = [[30, 200, 20, 220, 0], [90, 160, 70, 200, 20], [10, 100, 100, 200, 24], [0, 255, 0, 255, 28]];
    let mut seeds = Vec::new();
    for file in files() {
        let Ok(index) = SeekIndex::build(&file) else { continue };
        for wish in wishes {
            let bytes = Wish::of(&wish).trim(&file, &index).expect("the files can be trimmed");
            seeds.push([&wish, &bytes[..bytes.len() - CHECKSUM_BYTES]].concat());
        }
    }
    seeds
}
