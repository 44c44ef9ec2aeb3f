//! The builder of seek indexes. An index survives writing and reading, and agrees with the header of its file. Decoding with the
//! index, or from a trimmed picture, gives the same pixels as decoding without it, or an error.

use feedline_codec::{SeekIndex, read_header};

use crate::pictures::{CropRequest, files};

/// Input: a request and a file.
pub fn run(data: &[u8]) {
    let (request, file) = data.split_at(data.len().min(CropRequest::BYTES));
    let Ok(index) = SeekIndex::build(file) else { return };
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
