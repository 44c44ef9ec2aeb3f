//! The builder of seek indexes. An index survives writing and reading, and agrees with the header of its file. Decoding with the
//! index, or from a trimmed picture, gives the same pixels as decoding without it, or an error. If the index is built while a crop is
//! decoded, it is the same, and so are the pixels.

use std::cell::OnceCell;

use feedline_codec::{Encoded, SeekIndex, read_header};

use crate::pictures::{CropRequest, files};

/// Input: a request and a file.
pub fn run(data: &[u8]) {
    let (request, file) = data.split_at(data.len().min(CropRequest::BYTES));
    let built = SeekIndex::build(file);
    if let Ok(header) = read_header(file) {
        let (request, in_one_pass) = (CropRequest::of(request), OnceCell::new());
        let pixels = request.decode(Encoded::Unindexed { bytes: file, index: &in_one_pass }, &header);
        assert!(in_one_pass.get().is_none_or(|index| *index == built), "another index: {in_one_pass:?}, {built:?}");
        if pixels.is_some() {
            assert!(in_one_pass.get().is_some());
            assert_eq!(pixels, request.rows(file, None, &header), "{:?} in one pass", request.crop(&header));
        }
    }
    let Ok(index) = built else { return };
    assert_eq!(SeekIndex::from_bytes(&index.to_bytes()).as_ref(), Ok(&index));
    let header = read_header(file).expect("a file with an index has a header");
    assert_eq!(index.header(), header);
    assert!(index.fits(file));
    let request = CropRequest::of(request);
    if let Some(pixels) = request.rows(file, Some(&index), &header) {
        assert_eq!(Some(&pixels), request.rows(file, None, &header).as_ref(), "{:?}", request.crop(&header));
        if let Some(trimmed) = request.trim(file, &index) {
            assert_eq!(Some(pixels), request.trimmed_rows(&trimmed), "{:?} trimmed", request.crop(&header));
        }
    }
}

/// Files after different requests.
pub fn seeds() -> Vec<Vec<u8>> {
    let requests = [[0, 255, 0, 255, 0], [90, 160, 70, 200, 1], [10, 100, 100, 200, 20], [200, 255, 0, 30, 24]];
    files().iter().zip(requests.iter().cycle()).map(|(file, request)| [request.as_slice(), file].concat()).collect()
}
