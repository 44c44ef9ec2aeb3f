//! The reader of progressive JPEG. It gives the pixels of libjpeg, or leaves the file to it. A trimmed picture gives the same pixels.

use feedline_codec::{Encoded, JpegCoding, Subsampling, read_header, trim_progressive};

use crate::pictures::{CropRequest, jpeg};

/// How the seeds begin, and where their first segment ends.
const APP0: &[u8] = &[0xff, 0xd8, 0xff, 0xe0, 0, 16];
const APP0_END: usize = 20;

/// Input: a request and a file.
pub fn run(data: &[u8]) {
    let (request, file) = data.split_at(data.len().min(CropRequest::BYTES));
    let Ok(header) = read_header(file) else { return };
    let request = CropRequest::of(request);
    let pixels = request.decode(Encoded::Whole(file), &header);
    let trimmed = trim_progressive(file, request.crop(&header), &request.options());
    if let Ok(Some(trimmed)) = trimmed {
        assert!(pixels == request.trimmed_rows(&trimmed), "{:?} trimmed", request.crop(&header));
    }
    let Some((first, rest)) = file.split_at_checked(APP0_END).filter(|(first, _)| first.starts_with(APP0)) else {
        return;
    };
    // libjpeg skips a byte between segments. No other decoder here reads such a file.
    let for_libjpeg = [first, &[1], rest].concat();
    if pixels.is_some() && read_header(&for_libjpeg).is_ok_and(|other| other == header) {
        assert!(pixels == request.decode(Encoded::Whole(&for_libjpeg), &header), "{:?}", request.crop(&header));
    }
}

/// Files with all kinds of scans after different requests.
pub fn seeds() -> Vec<Vec<u8>> {
    let scans = |bands, refined, restarts| JpegCoding::Scans { bands, refined, restarts };
    let files = [
        jpeg(JpegCoding::Progressive, Subsampling::S420, 3, (43, 37)),
        jpeg(JpegCoding::Progressive, Subsampling::S444, 3, (60, 20)),
        jpeg(scans(2, 1, 0), Subsampling::S422, 3, (24, 41)),
        jpeg(scans(3, 3, 2), Subsampling::S420, 3, (33, 30)),
        jpeg(scans(1, 6, 0), Subsampling::Grey, 3, (40, 24)),
        jpeg(scans(4, 0, 5), Subsampling::S411, 3, (80, 17)),
        jpeg(scans(1, 2, 0), Subsampling::S420, 4, (20, 33)),
    ];
    let requests = [[0, 255, 0, 255, 0], [90, 160, 70, 200, 1], [10, 100, 100, 200, 20], [200, 255, 0, 30, 24]];
    files.iter().zip(requests.iter().cycle()).map(|(file, request)| [request.as_slice(), file].concat()).collect()
}
