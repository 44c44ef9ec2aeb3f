//! The reader of trimmed pictures. Even from a forged one with a correct checksum, a crop is pixels or an error.

use feedline_codec::{SeekIndex, Trimmed};

use crate::pictures::{CropRequest, files};

const CHECKSUM_BYTES: usize = 8;

/// Input: a request and the content of a trimmed picture.
pub fn run(data: &[u8]) {
    let (request, content) = data.split_at(data.len().min(CropRequest::BYTES));
    CropRequest::of(request).trimmed_rows(&Trimmed::forged(content));
}

/// All files that have an index, trimmed for crops at several scales.
pub fn seeds() -> Vec<Vec<u8>> {
    let requests = [[30, 200, 20, 220, 0], [90, 160, 70, 200, 20], [10, 100, 100, 200, 24], [0, 255, 0, 255, 28]];
    let mut seeds = Vec::new();
    for file in files() {
        let Ok(index) = SeekIndex::build(&file) else { continue };
        for request in requests {
            let bytes = CropRequest::of(&request).trim(&file, &index).expect("the files can be trimmed");
            seeds.push([&request, &bytes[..bytes.len() - CHECKSUM_BYTES]].concat());
        }
    }
    seeds
}
