//! A part of a whole file has the pixels of a full decode, in every format but JPEG, which `seek.rs` covers.

#![allow(clippy::unwrap_used, reason = "helpers of tests are outside of #[test] functions")]

mod support;

use feedline_codec::{
    DecodeOptions, Encoded, Mode, Picture, Rect, decode_into, decode_part_into, encode_png, read_header,
};
use support::{Numbers, SIZES, assert_same, crop, decode, gradient, interlaced_png, options, pngs, webps};

/// Compares parts around random crops with the whole picture. `most` returns the largest part that may be decoded for a crop.
#[track_caller]
fn check(bytes: &[u8], mode: Mode, crops: usize, numbers: &mut Numbers, most: impl Fn(Rect) -> Rect) {
    let header = read_header(bytes).unwrap();
    let options = DecodeOptions { exif: false, ..options(mode) };
    let mut whole = Picture::default();
    decode_into(bytes, &options, &mut whole).unwrap();
    let mut part = Picture::default();
    for _ in 0..crops {
        let crop = crop(numbers, header.width, header.height);
        // Work memory holds the bytes of other pictures.
        part.pixels.fill(170);
        let found = decode_part_into(Encoded::Whole(bytes), crop, &options, &mut part).unwrap();
        let what = format!("{} of {} x {}, {mode:?}", header.format, header.width, header.height);
        assert!(most(crop).contains(&found), "{what}: {found:?} for {crop:?}");
        assert_same(&whole, &part, found, crop, &what);
    }
}

#[test]
fn law_8_a_part_of_a_webp_has_the_pixels_of_the_whole() {
    let mut numbers = Numbers(0x5eb0);
    let around = |crop: Rect| Rect {
        left: crop.left.saturating_sub(2),
        top: crop.top.saturating_sub(2),
        width: crop.width + 3,
        height: crop.height + 3,
    };
    for (width, height) in SIZES.into_iter().chain([(2, 2), (3, 90), (256, 161)]) {
        for bytes in webps(&mut numbers, width, height) {
            for mode in [Mode::Rgb, Mode::Grey] {
                check(&bytes, mode, 40, &mut numbers, around);
            }
        }
    }
}

#[test]
fn law_8_a_part_of_a_png_has_the_pixels_of_the_whole() {
    let mut numbers = Numbers(0x9117);
    // The last one is larger than the decoder's buffer.
    for (width, height) in SIZES.into_iter().chain([(301, 230)]) {
        for bytes in pngs(&mut numbers, width, height) {
            let mask = decode(&bytes, Mode::Mask).is_ok().then_some(Mode::Mask);
            for mode in [Mode::Rgb, Mode::Grey].into_iter().chain(mask) {
                check(&bytes, mode, 20, &mut numbers, |crop| crop);
            }
        }
    }
    let bytes = interlaced_png(&gradient(61, 47, 1), 61, 47);
    check(&bytes, Mode::Rgb, 5, &mut numbers, |_| Rect::whole(61, 47));
}

#[test]
fn a_part_of_a_png_ends_with_the_last_chunk_that_it_needs() {
    let mut numbers = Numbers(0x1dea);
    let (width, height) = (200, 300);
    let pixels = numbers.bytes(width as usize * height as usize * 3);
    let bytes = encode_png(&pixels, width, height, 3).unwrap();
    let middle = bytes.len() / 2;
    let crop = |height| Rect { left: 0, top: 0, width, height };
    let options = options(Mode::Rgb);
    let mut part = Picture::default();
    let mut outcome = |bytes: &[u8], height| decode_part_into(Encoded::Whole(bytes), crop(height), &options, &mut part);

    let mut changed = bytes.clone();
    changed[middle] ^= 1;
    for (damaged, what) in [(&bytes[..middle], "cut"), (&changed[..], "changed")] {
        assert!(decode(damaged, Mode::Rgb).is_err(), "{what}");
        assert!(outcome(damaged, height).is_err(), "{what}: all rows");
        assert!(outcome(damaged, height * 3 / 4).is_err(), "{what}: rows behind the damage");
    }
    outcome(&bytes, 1).unwrap();
}
