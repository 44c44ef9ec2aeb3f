//! A crop that is decoded while the index of its file is built: the pixels and errors of decoding without an index, and the same
//! index as without a crop. `seek.rs` compares pixels of every flavour.
#![allow(clippy::unwrap_used, reason = "helpers of tests are outside of #[test] functions")]

mod support;

use std::cell::{Cell, OnceCell};

use feedline_codec::{
    CodecError, DecodeOptions, Encoded, JpegCoding, Mode, Picture, Rect, SeekIndex, Subsampling, decode_part_into,
    encode_jpeg_as, encode_png,
};
use support::{Numbers, crop, gradient, options, picture};

const SIZE: (u32, u32) = (160, 120);

fn file(numbers: &mut Numbers, coding: JpegCoding) -> Vec<u8> {
    let (width, height) = SIZE;
    let pixels = picture(numbers, width, height, 3);
    encode_jpeg_as(coding, &pixels, (width, height, 3), 85, Subsampling::S420).unwrap()
}

/// Checks that the result is that of decoding without an index, and that the index is what `SeekIndex::build` returns.
#[track_caller]
fn check(file: &[u8], crop: Rect, what: &str) {
    let (mut alone, mut together) = (Picture::default(), Picture::default());
    let expected = decode_part_into(Encoded::Whole(file), crop, &options(Mode::Rgb), &mut alone);
    let index = OnceCell::new();
    let found =
        decode_part_into(Encoded::Unindexed { bytes: file, index: &index }, crop, &options(Mode::Rgb), &mut together);
    assert_eq!(index.into_inner(), Some(SeekIndex::build(file)), "{what}: the index");
    match (expected, found) {
        (Ok(expected), Ok(found)) => {
            let of = |picture: &Picture, part: Rect| {
                let view = picture.view().crop(crop.left - part.left, crop.top - part.top, crop.width, crop.height);
                view.rows().flatten().copied().collect::<Vec<u8>>()
            };
            assert!(of(&alone, expected) == of(&together, found), "{what}: the pixels");
        }
        (Err(expected), Err(found)) => assert_eq!(expected.to_string(), found.to_string(), "{what}"),
        // libjpeg does not read the data below the crop, and reads past some errors that a file with an index must not have.
        (Ok(_), Err(found)) => panic!("{what}: {found}"),
        // A file with an index follows the standard, and libjpeg decodes such files.
        (Err(expected), Ok(_)) => panic!("{what}: without an index {expected}"),
    }
}

#[test]
fn a_file_cut_anywhere_is_decoded_as_without_an_index() {
    let mut numbers = Numbers(71);
    for coding in [JpegCoding::Baseline, JpegCoding::Optimised, JpegCoding::Restarts(3)] {
        let file = file(&mut numbers, coding);
        for cut in (300..file.len()).step_by(131).chain(file.len() - 12..=file.len()) {
            let top = Rect { left: 30, top: 0, width: 90, height: 40 };
            for crop in [top, crop(&mut numbers, SIZE.0, SIZE.1)] {
                if feedline_codec::read_header(&file[..cut]).is_ok() {
                    check(&file[..cut], crop, &format!("{coding:?} cut at {cut}, {crop:?}"));
                }
            }
        }
    }
}

#[test]
fn changed_bytes_give_the_index_that_is_built_without_a_crop() {
    let mut numbers = Numbers(72);
    for coding in [JpegCoding::Baseline, JpegCoding::Optimised, JpegCoding::Restarts(3)] {
        let file = file(&mut numbers, coding);
        for round in 0..600 {
            let mut changed = file.clone();
            let at = numbers.below(file.len() as u64) as usize;
            changed[at] ^= 1 << numbers.below(8);
            let crop = crop(&mut numbers, SIZE.0, SIZE.1);
            let (index, mut part) = (OnceCell::new(), Picture::default());
            let encoded = Encoded::Unindexed { bytes: &changed, index: &index };
            // A changed header may be that of a smaller picture.
            let is_inside = feedline_codec::read_header(&changed).is_ok_and(|header| {
                crop.right() <= header.width && crop.bottom() <= header.height && header.width * header.height < 1 << 20
            });
            if !is_inside {
                continue;
            }
            let what = format!("{coding:?}, round {round}, byte {at}");
            if decode_part_into(encoded, crop, &options(Mode::Rgb), &mut part).is_ok() {
                assert_eq!(index.into_inner(), Some(SeekIndex::build(&changed)), "{what}");
            }
        }
    }
}

#[test]
fn other_formats_get_their_index_or_the_reason_why_there_is_none() {
    let mut numbers = Numbers(73);
    let pixels = gradient(40, 30, 3);
    let crop = Rect { left: 3, top: 4, width: 20, height: 21 };
    check(&encode_png(&pixels, 40, 30, 3).unwrap(), crop, "PNG");
    check(&[&b"P6 40 30 255\n"[..], &pixels].concat(), crop, "PPM");
    check(&file(&mut numbers, JpegCoding::Progressive), crop, "progressive");
    check(&file(&mut numbers, JpegCoding::Arithmetic), crop, "arithmetic");
}

#[test]
fn a_cancelled_pass_says_nothing_about_the_index() {
    let file = file(&mut Numbers(74), JpegCoding::Baseline);
    let asked = Cell::new(0);
    let cancel = || {
        asked.set(asked.get() + 1);
        asked.get() > 1
    };
    let (index, mut part) = (OnceCell::new(), Picture::default());
    let options = DecodeOptions { cancel: &cancel, ..options(Mode::Rgb) };
    let encoded = Encoded::Unindexed { bytes: &file, index: &index };
    let error = decode_part_into(encoded, Rect::whole(SIZE.0, SIZE.1), &options, &mut part).unwrap_err();
    assert!(matches!(error, CodecError::Cancelled), "{error}");
    assert_eq!(index.get(), None);
}
