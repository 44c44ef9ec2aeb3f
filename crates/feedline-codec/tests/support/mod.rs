//! Pictures and files that the tests generate.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are outside of #[test] functions")]

use std::io::Cursor;

use feedline_codec::{
    CodecError, DecodeOptions, JpegCoding, Mode, Picture, Rect, Subsampling, WebPCoding, decode_into, encode_jpeg_as,
    encode_webp, read_header,
};
use png::{BitDepth, ColorType, Filter};

pub(crate) const SIZES: [(u32, u32); 10] =
    [(1, 1), (7, 5), (8, 8), (16, 16), (17, 33), (35, 18), (64, 48), (131, 97), (203, 37), (41, 290)];
pub(crate) const SAMPLINGS: [Subsampling; 6] =
    [Subsampling::S444, Subsampling::S422, Subsampling::S420, Subsampling::S440, Subsampling::S411, Subsampling::Grey];
pub(crate) const CODINGS: [JpegCoding; 8] = [
    JpegCoding::Baseline,
    JpegCoding::Optimised,
    JpegCoding::Extended,
    JpegCoding::Restarts(1),
    JpegCoding::Restarts(2),
    JpegCoding::Restarts(4),
    JpegCoding::Restarts(7),
    JpegCoding::Restarts(60),
];

/// A fixed sequence of numbers (xorshift).
pub(crate) struct Numbers(pub u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.next() >> 32) as u8).collect()
    }
}

/// A smooth picture that is not its own mirror image.
pub(crate) fn gradient(width: u32, height: u32, channels: u8) -> Vec<u8> {
    let mut pixels = Vec::new();
    for y in 0..height {
        for x in 0..width {
            for c in 0..u32::from(channels) {
                let across = x * (200 - 60 * c) / width.max(2);
                let down = y * (20 + 30 * c) / height.max(2);
                pixels.push((across + down + 10 * c) as u8);
            }
        }
    }
    pixels
}

/// Waves, edges and noise, so that DC and AC values of all sizes occur.
pub(crate) fn picture(numbers: &mut Numbers, width: u32, height: u32, channels: u8) -> Vec<u8> {
    let (across, down) = (3 + numbers.below(40), 3 + numbers.below(40));
    let noise = numbers.below(60) + 1;
    let mut pixels = Vec::new();
    for y in 0..u64::from(height) {
        for x in 0..u64::from(width) {
            for channel in 0..u64::from(channels) {
                let edge = if (x / 23 + y / 19 + channel) % 3 == 0 { 110 } else { 0 };
                pixels.push((x * across / 8 + y * down / 9 + edge + numbers.below(noise)) as u8);
            }
        }
    }
    pixels
}

/// PNG files of a size, not interlaced: each colour, 8 and 16 bits, palettes, one filter for all rows and several.
pub(crate) fn pngs(numbers: &mut Numbers, width: u32, height: u32) -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    let colours =
        [(ColorType::Grayscale, 1), (ColorType::GrayscaleAlpha, 2), (ColorType::Rgb, 3), (ColorType::Rgba, 4)];
    for (colour, channels) in colours {
        let pixels = picture(numbers, width, height, channels);
        let filters = [Filter::NoFilter, Filter::Sub, Filter::Up, Filter::Avg, Filter::Paeth, Filter::Adaptive];
        files.extend(filters.map(|filter| filtered_png(&pixels, (width, height), colour, filter)));
        let wide: Vec<u8> = pixels.iter().flat_map(|&value| [value, !value]).collect();
        files.push(png_of(&wide, (width, height), (colour, BitDepth::Sixteen), |_| {}));
    }
    let palette: Vec<u8> = (0..=255).flat_map(|i: u8| [i, i.wrapping_mul(7), !i]).collect();
    let pixels = numbers.bytes(width as usize * height as usize);
    let with_palette = |info: &mut png::Info<'static>| info.palette = Some(palette.into());
    files.push(png_of(&pixels, (width, height), (ColorType::Indexed, BitDepth::Eight), with_palette));
    let bits = numbers.bytes(width.div_ceil(8) as usize * height as usize);
    files.push(png_of(&bits, (width, height), (ColorType::Grayscale, BitDepth::One), |_| {}));
    files
}

fn filtered_png(pixels: &[u8], (width, height): (u32, u32), colour: ColorType, filter: Filter) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(colour);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_filter(filter);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(pixels).unwrap();
    writer.finish().unwrap();
    bytes
}

/// WebP files of a size: each coding, two qualities, and animations of one frame.
pub(crate) fn webps(numbers: &mut Numbers, width: u32, height: u32) -> Vec<Vec<u8>> {
    let pixels = picture(numbers, width, height, 3);
    let codings = [WebPCoding::Lossless, WebPCoding::Lossy(30), WebPCoding::Lossy(95), WebPCoding::SimpleFilter(10)];
    let mut files = codings.map(|coding| encode_webp(&pixels, width, height, coding).unwrap()).to_vec();
    files.push(animated_webp((width + 7, height + 9), &files[0], 4, 2));
    files.push(animated_webp((width + 4, height + 3), &files[1], 2, 0));
    files
}

/// Calls `check` with a JPEG of each size, sampling and coding, and with a description of it.
#[track_caller]
pub(crate) fn every_flavour(numbers: &mut Numbers, mut check: impl FnMut(&[u8], &mut Numbers, &str)) {
    for (width, height) in SIZES {
        for sampling in SAMPLINGS {
            for coding in CODINGS {
                let quality = [3, 40, 85, 97][numbers.below(4) as usize];
                let pixels = picture(numbers, width, height, 3);
                let file = encode_jpeg_as(coding, &pixels, (width, height, 3), quality, sampling).unwrap();
                check(&file, numbers, &format!("{width}x{height} {sampling:?} {coding:?} quality {quality}"));
            }
        }
    }
}

pub(crate) fn crop(numbers: &mut Numbers, width: u32, height: u32) -> Rect {
    let mut side = |len: u32| {
        let size = 1 + numbers.below(u64::from(len)) as u32;
        (numbers.below(u64::from(len - size) + 1) as u32, size)
    };
    let ((left, width), (top, height)) = (side(width), side(height));
    Rect { left, top, width, height }
}

#[track_caller]
pub(crate) fn assert_same(whole: &Picture, part: &Picture, found: Rect, crop: Rect, what: &str) {
    assert!(found.contains(&crop), "{what}: {found:?} does not contain {crop:?}");
    let expected = whole.view().crop(crop.left, crop.top, crop.width, crop.height);
    let pixels = part.view().crop(crop.left - found.left, crop.top - found.top, crop.width, crop.height);
    assert!(expected.rows().eq(pixels.rows()), "{what}: {crop:?} differs");
}

pub(crate) fn options(mode: Mode) -> DecodeOptions<'static> {
    DecodeOptions { mode, exif: true, max_pixels: 1 << 24, fast: None, cancel: &|| false }
}

pub(crate) fn decode(bytes: &[u8], mode: Mode) -> Result<Picture, CodecError> {
    let mut picture = Picture::default();
    decode_into(bytes, &options(mode), &mut picture)?;
    Ok(picture)
}

#[track_caller]
pub(crate) fn assert_near(left: &[u8], right: &[u8], most: u8) {
    assert_eq!(left.len(), right.len(), "lengths");
    let worst = left.iter().zip(right).map(|(&left, &right)| left.abs_diff(right)).max().unwrap_or(0);
    assert!(worst <= most, "values differ by {worst}, more than {most}");
}

/// A lossless WebP, with an EXIF block if there is one.
pub(crate) fn webp(pixels: &[u8], width: u32, height: u32, exif: Option<Vec<u8>>) -> Vec<u8> {
    let bytes = encode_webp(pixels, width, height, WebPCoding::Lossless).unwrap();
    let Some(exif) = exif else { return bytes };
    let flags = [0x08, 0, 0, 0];
    let header = [&flags, &(width - 1).to_le_bytes()[..3], &(height - 1).to_le_bytes()[..3]].concat();
    riff(&[chunk("VP8X", &header), bytes[12..].to_vec(), chunk("EXIF", &exif)].concat())
}

/// An animated WebP of a size, whose only frame is another WebP, `left` and `top` pixels inside.
pub(crate) fn animated_webp(size: (u32, u32), frame: &[u8], left: u32, top: u32) -> Vec<u8> {
    let flags = [0x02, 0, 0, 0];
    let header = [&flags, &(size.0 - 1).to_le_bytes()[..3], &(size.1 - 1).to_le_bytes()[..3]].concat();
    let (width, height) = read_header(frame).map(|header| (header.width, header.height)).unwrap();
    let place = [left / 2, top / 2, width - 1, height - 1, 100].map(u32::to_le_bytes);
    let place: Vec<u8> = place.iter().flat_map(|number| &number[..3]).chain([&0]).copied().collect();
    let content = [&place, &frame[12..]].concat();
    riff(&[chunk("VP8X", &header), chunk("ANIM", &[9; 6]), chunk("ANMF", &content)].concat())
}

fn riff(chunks: &[u8]) -> Vec<u8> {
    chunk("RIFF", &[b"WEBP", chunks].concat())
}

fn chunk(kind: &str, content: &[u8]) -> Vec<u8> {
    let mut bytes = [kind.as_bytes(), &(content.len() as u32).to_le_bytes()[..], content].concat();
    bytes.resize(bytes.len().next_multiple_of(2), 0);
    bytes
}

pub(crate) fn bmp(pixels: &[u8], width: u32, height: u32, colour: image::ExtendedColorType) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image::codecs::bmp::BmpEncoder::new(&mut bytes).encode(pixels, width, height, colour).unwrap();
    bytes.into_inner()
}

pub(crate) fn gif(pixels: &[u8], width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    image::codecs::gif::GifEncoder::new(&mut bytes)
        .encode(pixels, width, height, image::ExtendedColorType::Rgb8)
        .unwrap();
    bytes
}

/// A PNG of any kind. `data` contains its packed rows.
pub(crate) fn png_of(
    data: &[u8],
    (width, height): (u32, u32),
    (colour, depth): (png::ColorType, png::BitDepth),
    change: impl FnOnce(&mut png::Info<'static>),
) -> Vec<u8> {
    let mut info = png::Info::with_size(width, height);
    info.color_type = colour;
    info.bit_depth = depth;
    change(&mut info);
    let mut bytes = Vec::new();
    let mut writer = png::Encoder::with_info(&mut bytes, info).unwrap().write_header().unwrap();
    writer.write_image_data(data).unwrap();
    writer.finish().unwrap();
    bytes
}

/// A TIFF block that contains only an orientation.
pub(crate) fn exif(orientation: u8) -> Vec<u8> {
    let mut block = b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
    block.extend([orientation, 0, 0, 0, 0, 0, 0]);
    block
}

/// The JPEG with an APP1 segment after its start marker.
pub(crate) fn with_exif(jpeg: &[u8], orientation: u8) -> Vec<u8> {
    let block = exif(orientation);
    let mut bytes = jpeg[..2].to_vec();
    bytes.extend([0xff, 0xe1]);
    bytes.extend((block.len() as u16 + 8).to_be_bytes());
    bytes.extend(b"Exif\0\0");
    bytes.extend(block);
    bytes.extend(&jpeg[2..]);
    bytes
}

/// An interlaced grey PNG of 8 bits, which the `png` crate does not write: seven passes, in stored blocks.
pub(crate) fn interlaced_png(pixels: &[u8], width: u32, height: u32) -> Vec<u8> {
    let mut data = Vec::new();
    let passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)];
    for (left, top, across, down) in passes {
        for y in (top..height).step_by(down) {
            let row: Vec<u8> = (left..width).step_by(across).map(|x| pixels[(y * width + x) as usize]).collect();
            if !row.is_empty() {
                data.push(0);
                data.extend(row);
            }
        }
    }
    let (mut low, mut high) = (1_u32, 0_u32);
    for &byte in &data {
        low = (low + u32::from(byte)) % 65521;
        high = (high + low) % 65521;
    }
    let len = u16::try_from(data.len()).unwrap();
    let mut stored = vec![0x78, 0x01, 1];
    stored.extend(len.to_le_bytes());
    stored.extend((!len).to_le_bytes());
    stored.extend(data);
    stored.extend(((high << 16) | low).to_be_bytes());

    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    header.extend([8, 0, 0, 0, 1]);
    for (kind, content) in [(b"IHDR", &header), (b"IDAT", &stored), (b"IEND", &Vec::new())] {
        bytes.extend((content.len() as u32).to_be_bytes());
        let checked = [&kind[..], content].concat();
        let sum = checked.iter().fold(u32::MAX, |sum, &byte| {
            (0..8).fold(sum ^ u32::from(byte), |sum, _| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 })
        });
        bytes.extend(checked);
        bytes.extend((!sum).to_be_bytes());
    }
    bytes
}

/// A PNG of RGB with 16 bits a channel: each byte twice.
pub(crate) fn deep_png(pixels: &[u8], width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Sixteen);
    let doubled: Vec<u8> = pixels.iter().flat_map(|&byte| [byte; 2]).collect();
    encoder.write_header().unwrap().write_image_data(&doubled).unwrap();
    bytes
}
