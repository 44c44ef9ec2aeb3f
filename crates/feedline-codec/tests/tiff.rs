//! TIFF: every kind of file gives the encoded pixels, parts are those of the whole, and false numbers give errors.

#![allow(clippy::unwrap_used, reason = "helpers of tests are outside of #[test] functions")]

mod support;

use feedline_codec::{
    CodecError, DecodeOptions, Encoded, Format, Mode, Picture, Rect, TiffCoding, TiffPacking, decode_part_into,
    encode_tiff, read_header,
};
use support::{Numbers, SIZES, crop, decode, options};

const PACKINGS: [TiffPacking; 4] = [TiffPacking::None, TiffPacking::Lzw, TiffPacking::Deflate, TiffPacking::PackBits];

/// All combinations, with tiles of three shapes.
fn codings() -> Vec<TiffCoding> {
    let mut codings = Vec::new();
    for packing in PACKINGS {
        for tile in [None, Some((16, 16)), Some((32, 16)), Some((7, 5))] {
            for bits in 0..16 {
                let [is_deep, has_differences, is_planar, is_big_endian] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
                codings.push(TiffCoding { packing, tile, is_deep, has_differences, is_planar, is_big_endian });
            }
        }
    }
    codings
}

/// Runs and noise, so that all packings meet both.
fn pixels(numbers: &mut Numbers, width: u32, height: u32, channels: u8) -> Vec<u8> {
    let mut pixels = numbers.bytes(width as usize * height as usize * usize::from(channels));
    let third = pixels.len() / 3;
    pixels[..third].fill(77);
    pixels
}

/// The channels that are left when alpha is dropped.
fn without_alpha(pixels: &[u8], channels: usize) -> Vec<u8> {
    let kept = if channels >= 3 { 3 } else { 1 };
    pixels.chunks_exact(channels).flat_map(|pixel| pixel[..kept].to_vec()).collect()
}

#[test]
fn every_kind_of_file_gives_its_pixels() {
    let mut numbers = Numbers(0x71ff);
    for (number, coding) in codings().into_iter().enumerate() {
        let (width, height) = SIZES[number % SIZES.len()];
        for channels in 1..=4 {
            let stored = pixels(&mut numbers, width, height, channels);
            let bytes = encode_tiff(&stored, width, height, channels, coding).unwrap();
            let header = read_header(&bytes).unwrap();
            assert_eq!((header.format, header.width, header.height), (Format::Tiff, width, height));
            let expected = without_alpha(&stored, usize::from(channels));
            let mode = if channels >= 3 { Mode::Rgb } else { Mode::Grey };
            assert!(decode(&bytes, mode).unwrap().bytes() == expected, "{coding:?}, {channels} channels");
            // The other mode converts as for all formats: grey is repeated.
            if channels < 3 {
                let rgb: Vec<u8> = expected.iter().flat_map(|&grey| [grey; 3]).collect();
                assert!(decode(&bytes, Mode::Rgb).unwrap().bytes() == rgb, "{coding:?}, {channels} channels");
            }
        }
    }
}

#[test]
fn law_8_a_part_of_a_tiff_has_the_pixels_of_the_whole() {
    let mut numbers = Numbers(0x7ffa);
    for (number, coding) in codings().into_iter().enumerate() {
        let (width, height) = SIZES[(number + 3) % SIZES.len()];
        let channels = 1 + (number % 4) as u8;
        let bytes =
            encode_tiff(&pixels(&mut numbers, width, height, channels), width, height, channels, coding).unwrap();
        for mode in [Mode::Rgb, Mode::Grey, Mode::Mask] {
            let Ok(whole) = decode(&bytes, mode) else { continue };
            for _ in 0..6 {
                let crop = crop(&mut numbers, width, height);
                let mut part = Picture::default();
                part.pixels.resize(100, 170);
                let found = decode_part_into(Encoded::Whole(&bytes), crop, &options(mode), &mut part).unwrap();
                assert_eq!(found, crop);
                let expected = whole.view().crop(crop.left, crop.top, crop.width, crop.height);
                assert!(expected.rows().flatten().eq(part.bytes()), "{coding:?}, {channels} channels, {crop:?}");
            }
        }
    }
}

#[test]
fn sixteen_bits_are_kept_and_eight_are_stretched() {
    let mut numbers = Numbers(0xdeeb);
    for (number, coding) in codings().into_iter().enumerate() {
        let (width, height) = SIZES[number % SIZES.len()];
        for channels in 1..=4 {
            let stored = pixels(&mut numbers, width, height, channels);
            let bytes = encode_tiff(&stored, width, height, channels, coding).unwrap();
            // The encoder writes each byte twice, so a stretched byte and a kept pair of bytes are the same.
            let expected: Vec<u8> =
                without_alpha(&stored, usize::from(channels)).iter().flat_map(|&byte| [byte; 2]).collect();
            let mode = if channels >= 3 { Mode::Rgb16 } else { Mode::Grey16 };
            let whole = decode(&bytes, mode).unwrap();
            assert!(whole.pixels[..expected.len()] == expected, "{coding:?}, {channels} channels");
            // Grey of colour, and a part.
            let grey = decode(&bytes, Mode::Grey16).unwrap();
            let row_bytes = width as usize * 2;
            let crop = crop(&mut numbers, width, height);
            let mut part = Picture::default();
            decode_part_into(Encoded::Whole(&bytes), crop, &options(Mode::Grey16), &mut part).unwrap();
            let rows = part.pixels.chunks_exact(crop.width as usize * 2).take(crop.height as usize);
            for (y, row) in (crop.top as usize..).zip(rows) {
                let start = y * row_bytes + crop.left as usize * 2;
                assert_eq!(row, &grey.pixels[start..start + row.len()], "{coding:?}, {channels} channels");
            }
        }
    }
}

#[test]
fn rows_below_a_crop_may_be_damaged() {
    let coding = TiffCoding { packing: TiffPacking::Deflate, ..TiffCoding::default() };
    let bytes = encode_tiff(&Numbers(5).bytes(60 * 70 * 3), 60, 70, 3, coding).unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2..bytes.len() * 2 / 3].fill(0xaa);
    assert!(matches!(decode(&damaged, Mode::Rgb), Err(CodecError::Damaged { .. } | CodecError::Truncated { .. })));
    let crop = Rect { left: 5, top: 3, width: 20, height: 10 };
    let (whole, mut part) = (decode(&bytes, Mode::Rgb).unwrap(), Picture::default());
    decode_part_into(Encoded::Whole(&damaged), crop, &options(Mode::Rgb), &mut part).unwrap();
    assert!(whole.view().crop(5, 3, 20, 10).rows().flatten().eq(part.bytes()));
}

/// A file of one row: fields as (tag, value), then the bytes of its strip.
fn tiny(fields: &[(u16, u32)], strip: &[u8]) -> Vec<u8> {
    let mut bytes = b"II\x2a\0\x08\0\0\0".to_vec();
    let start = 8 + 2 + fields.len() as u32 * 12 + 24 + 4;
    let mut all = fields.to_vec();
    all.extend([(273, start), (279, strip.len() as u32)]);
    bytes.extend((all.len() as u16).to_le_bytes());
    for (tag, value) in all {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(b"\x04\0\x01\0\0\0");
        bytes.extend(value.to_le_bytes());
    }
    bytes.extend([0; 4]);
    bytes.extend(strip);
    bytes
}

#[test]
fn few_bits_are_stretched_and_white_may_be_zero() {
    let picture = |bits: u32, inverted: u32| [(256, 4), (257, 1), (258, bits), (262, 1 - inverted)];
    let check = |bits: u32, inverted: u32, strip: &[u8], expected: [u8; 4]| {
        let bytes = tiny(&picture(bits, inverted), strip);
        assert_eq!(decode(&bytes, Mode::Grey).unwrap().bytes(), expected);
    };
    check(1, 0, &[0b1010_0000], [255, 0, 255, 0]);
    check(1, 1, &[0b1010_0000], [0, 255, 0, 255]);
    check(2, 0, &[0b0001_1011], [0, 85, 170, 255]);
    check(4, 0, &[0x0f, 0x12], [0, 255, 17, 34]);
    check(8, 1, &[0, 1, 2, 255], [255, 254, 253, 0]);
}

#[test]
fn what_is_not_read_is_named() {
    let small = [(256, 4), (257, 1)];
    let check = |more: &[(u16, u32)], expected: &str| {
        let bytes = tiny(&[&small, more].concat(), &[0; 64]);
        let error = decode(&bytes, Mode::Rgb).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    };
    check(&[(258, 32)], "samples of 32 bits");
    check(&[(258, 8), (339, 3)], "signed or floating-point");
    check(&[(258, 8), (262, 6), (277, 3)], "colours of kind 6 with 3 samples of 8 bits");
    check(&[(258, 8), (259, 7)], "compression 7");
    check(&[(258, 8), (317, 3)], "predictor 3");
    check(&[(258, 8), (277, 900)], "900 samples in a pixel");
    check(&[(258, 8), (262, 3)], "colour map is incomplete");
    check(&[(258, 8), (278, 0)], "tiles of 4 x 0");
    let big = decode(b"II\x2b\0\x08\0\0\0\x10\0\0\0\0\0\0\0", Mode::Rgb).unwrap_err();
    assert!(big.to_string().contains("BigTIFF"), "{big}");
}

#[test]
fn false_sizes_cost_no_memory() {
    let huge = |fields: &[(u16, u32)]| {
        let bytes = tiny(fields, &[0; 64]);
        let limit = DecodeOptions { max_pixels: 1 << 40, ..options(Mode::Rgb) };
        let mut picture = Picture::default();
        let crop = Rect { left: 0, top: 0, width: 1, height: 1 };
        let result = decode_part_into(Encoded::Whole(&bytes), crop, &limit, &mut picture);
        assert!(picture.pixels.capacity() < 1 << 10);
        result.err().map(|error| error.to_string())
    };
    let wide = huge(&[(256, u32::MAX), (257, 1), (258, 8)]);
    assert!(wide.unwrap().contains("rows of 4294967295 bytes"));
    // A strip of four billion rows is read row by row.
    assert_eq!(huge(&[(256, 4), (257, u32::MAX), (258, 8)]), None);
}
