//! Crops by the seek index and by region have exactly the pixels of a full decode, for every flavour of JPEG.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::cell::OnceCell;

use feedline_codec::{
    Encoded, JpegCoding, Mode, NotSeekable, Orientation, Picture, Rect, Scale, SeekIndex, Subsampling,
    decode_part_into, encode_jpeg_as, read_header,
};
use support::{Numbers, SAMPLINGS, SIZES, assert_same, crop, decode, every_flavour, options, picture};

/// Compares crops by region, by the index over the whole file, and by the index over only the bytes that it requires.
#[track_caller]
fn check(file: &[u8], mode: Mode, crops: usize, numbers: &mut Numbers, what: &str) {
    let whole = decode(file, mode).unwrap();
    let built = SeekIndex::build(file);
    let index = built.as_ref().map(|index| SeekIndex::from_bytes(&index.to_bytes()).unwrap());
    if let (Ok(index), Ok(built)) = (&index, &built) {
        assert_eq!(index, built, "{what}: an index written and read is the same");
        assert_eq!(index.header(), read_header(file).unwrap(), "{what}: header");
        assert!(index.fits(file));
    }
    let mut part = Picture::default();
    for number in 0..crops {
        let crop =
            if number == 0 { Rect::whole(whole.width, whole.height) } else { crop(numbers, whole.width, whole.height) };
        let options = options(mode);
        let found = decode_part_into(Encoded::Whole(file), crop, &options, &mut part).unwrap();
        assert_same(&whole, &part, found, crop, &format!("{what}, region"));
        let in_one_pass = OnceCell::new();
        let encoded = Encoded::Unindexed { bytes: file, index: &in_one_pass };
        let found = decode_part_into(encoded, crop, &options, &mut part).unwrap();
        assert_same(&whole, &part, found, crop, &format!("{what}, while the index is built"));
        assert_eq!(in_one_pass.into_inner().as_ref(), Some(&built), "{what}: the index of one pass");
        let Ok(index) = &index else { continue };
        let encoded = Encoded::Indexed { bytes: file, offset: 0, index };
        let found = decode_part_into(encoded, crop, &options, &mut part).unwrap();
        assert_same(&whole, &part, found, crop, &format!("{what}, index"));
        let range = index.bytes_for(crop, &options).unwrap();
        let bytes = &file[range.start as usize..range.end as usize];
        let encoded = Encoded::Indexed { bytes, offset: range.start, index };
        let found = decode_part_into(encoded, crop, &options, &mut part).unwrap();
        assert_same(&whole, &part, found, crop, &format!("{what}, index and range"));
    }
}

#[test]
fn law_8_crops_of_every_flavour_are_those_of_a_full_decode() {
    every_flavour(&mut Numbers(5), |file, numbers, what| {
        assert!(SeekIndex::build(file).is_ok(), "{what}: {:?}", SeekIndex::build(file));
        check(file, Mode::Rgb, 24, numbers, what);
    });
}

#[test]
fn law_8_crops_of_cmyk_and_of_grey_mode_are_those_of_a_full_decode() {
    let mut numbers = Numbers(6);
    for sampling in [Subsampling::S444, Subsampling::S420, Subsampling::S422] {
        let pixels = picture(&mut numbers, 93, 77, 4);
        let ycck = encode_jpeg_as(JpegCoding::Optimised, &pixels, (93, 77, 4), 80, sampling).unwrap();
        check(&ycck, Mode::Rgb, 60, &mut numbers, &format!("YCCK {sampling:?}"));
        check(&ycck, Mode::Grey, 20, &mut numbers, &format!("YCCK as grey {sampling:?}"));
        // The last byte of Adobe's segment is the colour transform.
        let adobe = ycck.windows(5).position(|window| window == b"Adobe").unwrap();
        let mut cmyk = ycck;
        cmyk[adobe + 11] = 0;
        check(&cmyk, Mode::Rgb, 60, &mut numbers, &format!("CMYK {sampling:?}"));
    }
    let pixels = picture(&mut numbers, 93, 77, 3);
    let file = encode_jpeg_as(JpegCoding::Baseline, &pixels, (93, 77, 3), 80, Subsampling::S420).unwrap();
    check(&file, Mode::Grey, 60, &mut numbers, "luma");
}

#[test]
fn law_8_crops_of_turned_pictures_are_those_of_a_full_decode() {
    let mut numbers = Numbers(7);
    for number in 1..=8_u8 {
        let pixels = picture(&mut numbers, 90, 61, 3);
        let file = encode_jpeg_as(JpegCoding::Baseline, &pixels, (90, 61, 3), 80, Subsampling::S420).unwrap();
        let file = support::with_exif(&file, number);
        assert_eq!(read_header(&file).unwrap().orientation, Orientation::from_exif(number.into()).unwrap());
        check(&file, Mode::Rgb, 40, &mut numbers, &format!("orientation {number}"));
    }
}

#[test]
fn a_profile_and_comments_do_not_disturb_and_are_not_needed() {
    let mut numbers = Numbers(8);
    let pixels = picture(&mut numbers, 120, 90, 3);
    let file = encode_jpeg_as(JpegCoding::Optimised, &pixels, (120, 90, 3), 80, Subsampling::S420).unwrap();
    let profile = [&b"ICC_PROFILE\0\x01\x01"[..], &numbers.bytes(5000)].concat();
    let segment =
        |marker: u8, content: &[u8]| [&[0xff, marker][..], &(content.len() as u16 + 2).to_be_bytes(), content].concat();
    let file = [&file[..2], &segment(0xe2, &profile), &segment(0xfe, b"a comment"), &file[2..]].concat();
    check(&file, Mode::Rgb, 40, &mut numbers, "with a profile");
    let range = SeekIndex::build(&file).unwrap().bytes_for(Rect::whole(120, 90), &options(Mode::Rgb)).unwrap();
    assert!(range.start > 5000, "the header is in the index: {range:?}");
}

#[test]
fn progressive_and_arithmetic_files_have_no_index_and_the_same_crops() {
    let mut numbers = Numbers(9);
    for coding in [JpegCoding::Progressive, JpegCoding::Arithmetic] {
        for (width, height) in SIZES {
            for sampling in SAMPLINGS {
                let pixels = picture(&mut numbers, width, height, 3);
                let file = encode_jpeg_as(coding, &pixels, (width, height, 3), 80, sampling).unwrap();
                let refused: Result<SeekIndex, NotSeekable> = SeekIndex::build(&file);
                assert!(refused.is_err(), "{coding:?}");
                check(&file, Mode::Rgb, 12, &mut numbers, &format!("{width}x{height} {sampling:?} {coding:?}"));
            }
        }
    }
}

#[test]
fn approximate_pixels_are_the_same_with_and_without_index() {
    let mut numbers = Numbers(10);
    for sampling in SAMPLINGS {
        for scale in [Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth] {
            let pixels = picture(&mut numbers, 303, 217, 3);
            let file = encode_jpeg_as(JpegCoding::Baseline, &pixels, (303, 217, 3), 85, sampling).unwrap();
            let index = SeekIndex::build(&file).unwrap();
            let options = feedline_codec::DecodeOptions { fast: Some(scale), ..options(Mode::Rgb) };
            let mut whole = Picture::default();
            feedline_codec::decode_into(&file, &options, &mut whole).unwrap();
            assert_eq!((whole.width, whole.height), read_header(&file).unwrap().size_at(scale));
            let mut part = Picture::default();
            for _ in 0..30 {
                let crop = crop(&mut numbers, whole.width, whole.height);
                let indexed = Encoded::Indexed { bytes: &file, offset: 0, index: &index };
                let built = OnceCell::new();
                let unindexed = Encoded::Unindexed { bytes: &file, index: &built };
                for encoded in [Encoded::Whole(&file), indexed, unindexed] {
                    let found = decode_part_into(encoded, crop, &options, &mut part).unwrap();
                    let what = format!("{sampling:?} {scale:?} index {}", matches!(encoded, Encoded::Indexed { .. }));
                    assert_same(&whole, &part, found, crop, &what);
                }
            }
        }
    }
}

#[test]
fn narrow_crops_at_the_right_edge_are_the_same_at_every_scale() {
    let mut numbers = Numbers(12);
    for sampling in [Subsampling::S422, Subsampling::S420] {
        for width in 64..=100 {
            let pixels = picture(&mut numbers, width, 24, 3);
            let file = encode_jpeg_as(JpegCoding::Baseline, &pixels, (width, 24, 3), 85, sampling).unwrap();
            let index = SeekIndex::build(&file).unwrap();
            for scale in [Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth] {
                let options = feedline_codec::DecodeOptions { fast: Some(scale), ..options(Mode::Rgb) };
                let (mut whole, mut part) = (Picture::default(), Picture::default());
                feedline_codec::decode_into(&file, &options, &mut whole).unwrap();
                for columns in 1..=4.min(whole.width) {
                    let crop = Rect { left: whole.width - columns, top: 0, width: columns, height: whole.height };
                    let encoded = Encoded::Indexed { bytes: &file, offset: 0, index: &index };
                    let found = decode_part_into(encoded, crop, &options, &mut part).unwrap();
                    assert_same(&whole, &part, found, crop, &format!("{width} {sampling:?} {scale:?} {columns}"));
                }
            }
        }
    }
}

#[test]
fn sides_that_libjpeg_refuses_have_no_index() {
    let mut file = encode_jpeg_as(JpegCoding::Baseline, &[7; 64 * 8], (8, 64, 1), 80, Subsampling::Grey).unwrap();
    let size = file.windows(2).position(|window| window == [0xff, 0xc0]).unwrap() + 5;
    file[size..size + 2].copy_from_slice(&65_528_u16.to_be_bytes());
    assert!(SeekIndex::build(&file).unwrap_err().to_string().contains("larger than libjpeg accepts"));
}

#[test]
fn a_restart_interval_that_libjpeg_refuses_has_no_index() {
    let file = encode_jpeg_as(JpegCoding::Baseline, &[7; 64 * 8], (8, 64, 1), 80, Subsampling::Grey).unwrap();
    let with = |interval: &[u8]| {
        let length = (interval.len() as u16 + 2).to_be_bytes();
        [&file[..2], &[0xff, 0xdd], &length, interval, &file[2..]].concat()
    };
    assert!(SeekIndex::build(&with(&[0, 0])).is_ok());
    for interval in [&[0][..], &[0, 0, 0], b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0"] {
        let refused = SeekIndex::build(&with(interval)).unwrap_err().to_string();
        assert!(refused.contains("restart interval"), "{interval:?}: {refused}");
    }
}

#[test]
fn rows_of_plain_pixels_are_addressed_directly() {
    let mut numbers = Numbers(11);
    for (channels, magic, mode) in [(3, "P6", Mode::Rgb), (1, "P5", Mode::Mask), (1, "P5", Mode::Rgb)] {
        let pixels = picture(&mut numbers, 50, 40, channels);
        let file = [format!("{magic}\n# made by a test\n50 40\n255\n").as_bytes(), &pixels].concat();
        check(&file, mode, 50, &mut numbers, magic);
        let index = SeekIndex::build(&file).unwrap();
        let range = index.bytes_for(Rect { left: 3, top: 10, width: 5, height: 7 }, &options(mode)).unwrap();
        assert_eq!(range.end - range.start, 7 * 50 * u64::from(channels), "seven rows");
    }
}

#[test]
fn plain_pixels_that_cannot_be_counted_are_refused_by_header_and_index() {
    let file = b"P6 4294967295 4294967295 255\n";
    assert!(read_header(file).is_err());
    assert!(SeekIndex::build(file).is_err());
    let forged = [[1, 1].as_slice(), &[0xff; 8], &[3, 19, 0]].concat();
    assert!(SeekIndex::from_bytes(&SeekIndex::forged(&forged)).is_err());
}

#[test]
fn an_index_accepts_exactly_the_plain_pixels_that_the_header_reader_accepts() {
    for (begin, is_picture) in [("P504 3", false), ("P5\x0c4 3", true), ("P5#\n4 3", true), ("P5", false)] {
        let file = [begin.as_bytes(), b" 255\n", &[7; 12]].concat();
        assert_eq!(read_header(&file).is_ok(), is_picture, "{begin:?}");
        assert_eq!(SeekIndex::build(&file).is_ok(), is_picture, "{begin:?}");
    }
}

#[test]
fn the_memory_that_a_huge_picture_takes_is_a_number_and_not_an_overflow() {
    let mut file = feedline_codec::encode_png(&[0; 3], 1, 1, 3).unwrap();
    file[16..24].fill(0xff);
    file[28] = 1;
    let header = read_header(&file).unwrap();
    assert_eq!(header.decode_bytes(Rect::whole(header.width, header.height), 3, true), u64::MAX);
}

#[test]
fn a_changed_byte_inside_a_crop_is_mostly_noticed_and_never_reaches_beyond_it() {
    let mut numbers = Numbers(41);
    let (width, height) = (160, 120);
    let pixels = picture(&mut numbers, width, height, 3);
    let file = encode_jpeg_as(JpegCoding::Baseline, &pixels, (width, height, 3), 85, Subsampling::S420).unwrap();
    let index = SeekIndex::build(&file).unwrap();
    let crop = Rect { left: 20, top: 10, width: 120, height: 90 };
    let range = index.bytes_for(crop, &options(Mode::Rgb)).unwrap();
    let decode = |file: &[u8]| {
        let mut part = Picture::default();
        let encoded = Encoded::Indexed { bytes: file, offset: 0, index: &index };
        decode_part_into(encoded, crop, &options(Mode::Rgb), &mut part).map(|_| part.pixels)
    };
    let sound = decode(&file).unwrap();
    let (mut errors, mut others) = (0, 0);
    for _ in 0..400 {
        let place = (range.start + numbers.below(range.end - range.start)) as usize;
        let mut changed = file.clone();
        changed[place] ^= 1 << numbers.below(8);
        match decode(&changed) {
            Err(_) => errors += 1,
            Ok(pixels) => others += usize::from(pixels != sound),
        }
    }
    assert!(errors > others, "{errors} noticed, {others} not");
}
