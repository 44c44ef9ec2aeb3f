//! Small valid picture files, and requests to decode parts of them.

use std::sync::LazyLock;

use feedline_codec::{
    DecodeOptions, Encoded, Header, JpegCoding, Mode, Picture, Rect, Scale, SeekIndex, Subsampling, TiffCoding,
    TiffPacking, Trimmed, WebPCoding, decode_part_into, encode_jpeg_as, encode_png, encode_tiff, encode_webp,
};
use feedline_data::testing::picture;

/// Larger pictures are refused, so that a run is short.
const MAX_PIXELS: u64 = 1 << 18;

/// JPEG files for which an index can be built: with subsampling, restarts, optimised tables, CMYK.
pub static SEEKABLE: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let kinds = [
        (JpegCoding::Baseline, Subsampling::S420, 3, (43, 37)),
        (JpegCoding::Optimised, Subsampling::S444, 3, (24, 17)),
        (JpegCoding::Restarts(2), Subsampling::S422, 3, (40, 24)),
        (JpegCoding::Restarts(7), Subsampling::Grey, 3, (33, 30)),
        (JpegCoding::Extended, Subsampling::S440, 3, (17, 40)),
        (JpegCoding::Optimised, Subsampling::S420, 4, (20, 33)),
        (JpegCoding::Baseline, Subsampling::S422, 3, (230, 20)),
    ];
    kinds.map(|(coding, sampling, channels, size)| jpeg(coding, sampling, channels, size)).to_vec()
});

/// One file of each format and coding.
pub fn files() -> Vec<Vec<u8>> {
    let mut files = SEEKABLE.clone();
    files.push(jpeg(JpegCoding::Progressive, Subsampling::S420, 3, (30, 20)));
    files.push(jpeg(JpegCoding::Arithmetic, Subsampling::S420, 3, (30, 20)));
    files.push(turned(&SEEKABLE[0]));
    files.push(encode_png(&picture(1, 9, 7), 9, 7, 3).expect("a picture of these sizes"));
    for coding in [WebPCoding::Lossless, WebPCoding::Lossy(60), WebPCoding::SimpleFilter(20)] {
        files.push(encode_webp(&picture(5, 37, 21), 37, 21, coding).expect("a picture of these sizes"));
    }
    files.push([b"P6\n# text\n5 4\n255\n".as_slice(), &picture(2, 5, 4)].concat());
    files.push([b"P5 4 3 255\n".as_slice(), &[7; 12]].concat());
    files
}

/// TIFF files of every packing, in strips and tiles, with 8 and 16 bits.
pub fn tiffs() -> Vec<Vec<u8>> {
    let packings = [TiffPacking::None, TiffPacking::Lzw, TiffPacking::Deflate, TiffPacking::PackBits];
    let codings = packings.into_iter().enumerate().flat_map(|(number, packing)| {
        let plain = TiffCoding { packing, has_differences: number % 2 == 1, ..TiffCoding::default() };
        [plain, TiffCoding { tile: Some((16, 16)), is_deep: true, is_big_endian: true, ..plain }]
    });
    let mut files: Vec<_> = codings.map(|coding| tiff(coding, 3)).collect();
    files.push(tiff(TiffCoding { is_planar: true, ..TiffCoding::default() }, 3));
    files.push(tiff(TiffCoding::default(), 1));
    files
}

fn tiff(coding: TiffCoding, channels: u8) -> Vec<u8> {
    let (width, height) = (37, 21);
    let mut pixels = picture(3, width, height);
    pixels.truncate(width as usize * height as usize * usize::from(channels));
    encode_tiff(&pixels, width, height, channels, coding).expect("a picture of these sizes")
}

/// A JPEG of a generated picture.
pub fn jpeg(coding: JpegCoding, sampling: Subsampling, channels: u8, (width, height): (u32, u32)) -> Vec<u8> {
    let mut pixels = picture(7, width, height);
    pixels.resize(width as usize * height as usize * usize::from(channels), 90);
    encode_jpeg_as(coding, &pixels, (width, height, channels), 60, sampling).expect("a picture of these sizes")
}

/// The JPEG with an EXIF segment that rotates it by 90 degrees (orientation 6).
fn turned(jpeg: &[u8]) -> Vec<u8> {
    let segment = b"\xff\xe1\0\x22Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    [&jpeg[..2], segment, &jpeg[2..]].concat()
}

/// A request for a part of a picture, from a few bytes: a crop, and how to decode it.
#[derive(Clone, Copy)]
pub struct CropRequest {
    places: [u8; 4],
    mode: Mode,
    fast: Option<Scale>,
}

impl CropRequest {
    /// Length of a request in bytes.
    pub const BYTES: usize = 5;

    /// Any bytes are a valid request. Missing ones count as zero.
    pub fn of(bytes: &[u8]) -> Self {
        let at = |place: usize| bytes.get(place).copied().unwrap_or_default();
        let mode = [Mode::Rgb, Mode::Grey, Mode::Rgb, Mode::Mask][usize::from(at(4) & 3)];
        let scales =
            [None, None, None, None, Some(Scale::Full), Some(Scale::Half), Some(Scale::Quarter), Some(Scale::Eighth)];
        Self { places: [at(0), at(1), at(2), at(3)], mode, fast: scales[usize::from(at(4) >> 2 & 7)] }
    }

    /// How to decode.
    pub fn options(&self) -> DecodeOptions<'static> {
        DecodeOptions { mode: self.mode, exif: true, max_pixels: MAX_PIXELS, fast: self.fast, cancel: &|| false }
    }

    /// The crop of a picture with this header.
    pub fn crop(&self, header: &Header) -> Rect {
        let (width, height) = header.size_at(self.fast.unwrap_or_default());
        let (width, height) = header.orientation.seen_size(width, height);
        let side = |len: u32, start: u8, end: u8| {
            // Bytes of the request are 256ths of the side.
            let at = |part: u8| (u64::from(len) * u64::from(part) / 256) as u32;
            let (first, last) = (at(start.min(end)), at(start.max(end)));
            (first, last - first + 1)
        };
        let [left, right, top, bottom] = self.places;
        let ((left, width), (top, height)) = (side(width, left, right), side(height, top, bottom));
        Rect { left, top, width, height }
    }

    /// The rows of the crop, decoded with or without the index. With the index, only the bytes that it names are used.
    pub fn rows(&self, file: &[u8], index: Option<&SeekIndex>, header: &Header) -> Option<Vec<u8>> {
        let Some(index) = index else { return self.decode(Encoded::Whole(file), header) };
        let (bytes, offset) = self.named(file, index)?;
        self.decode(Encoded::Indexed { bytes, offset, index }, header)
    }

    /// The file trimmed to the crop, from the bytes that the index names.
    pub fn trim(&self, file: &[u8], index: &SeekIndex) -> Option<Vec<u8>> {
        let (bytes, offset) = self.named(file, index)?;
        index.trim(self.crop(&index.header()), &self.options(), bytes, offset).ok()
    }

    /// The rows of the crop of a trimmed picture.
    pub fn trimmed_rows(&self, trimmed: &[u8]) -> Option<Vec<u8>> {
        let trimmed = Trimmed::read(trimmed).ok()?;
        self.decode(Encoded::Trimmed(&trimmed), &trimmed.header())
    }

    /// The bytes that the index names, and their offset.
    fn named<'f>(&self, file: &'f [u8], index: &SeekIndex) -> Option<(&'f [u8], u64)> {
        let range = index.bytes_for(self.crop(&index.header()), &self.options()).ok()?;
        assert!(range.start <= range.end, "{range:?} ends before it starts");
        let end = range.end.min(file.len() as u64);
        let start = range.start.min(end);
        Some((&file[start as usize..end as usize], range.start))
    }

    /// The rows of the crop.
    pub fn decode(&self, encoded: Encoded<'_>, header: &Header) -> Option<Vec<u8>> {
        let (crop, options) = (self.crop(header), self.options());
        let mut picture = Picture::default();
        let found = decode_part_into(encoded, crop, &options, &mut picture).ok()?;
        assert!(found.contains(&crop), "{found:?} does not hold {crop:?}");
        assert_eq!((picture.width, picture.height), (found.width, found.height));
        let view = picture.view().crop(crop.left - found.left, crop.top - found.top, crop.width, crop.height);
        Some(view.rows().flatten().copied().collect())
    }
}
