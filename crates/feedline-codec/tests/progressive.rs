//! Crops of progressive JPEG files have exactly the pixels of libjpeg's full decode, for all kinds of scans, and damaged files end as
//! they do with libjpeg.
//!
//! The same pixels, quality and sampling give the same coefficients in every coding. So the reference is a baseline file, which
//! libjpeg decodes alone.
#![allow(clippy::unwrap_used, reason = "helpers of tests are outside of #[test] functions")]

mod support;

use feedline_codec::{
    DecodeOptions, Encoded, Header, JpegCoding, Mode, Picture, Rect, Scale, SeekIndex, Subsampling, Trimmed,
    decode_into, decode_part_into, encode_jpeg_as, read_header, trim_progressive,
};
use support::{Numbers, SAMPLINGS, SIZES, assert_same, crop, decode, options, picture};

const SCRIPTS: [JpegCoding; 9] = [
    JpegCoding::Progressive,
    JpegCoding::Scans { bands: 1, refined: 0, restarts: 0 },
    JpegCoding::Scans { bands: 2, refined: 1, restarts: 0 },
    JpegCoding::Scans { bands: 3, refined: 2, restarts: 1 },
    JpegCoding::Scans { bands: 4, refined: 0, restarts: 3 },
    JpegCoding::Scans { bands: 5, refined: 3, restarts: 7 },
    JpegCoding::Scans { bands: 8, refined: 1, restarts: 40 },
    JpegCoding::Scans { bands: 1, refined: 8, restarts: 0 },
    JpegCoding::Scans { bands: 2, refined: 6, restarts: 2 },
];

/// Compares a file, whole and in crops, with the whole picture of a baseline file.
#[track_caller]
fn check(file: &[u8], baseline: &[u8], options: &DecodeOptions<'_>, crops: usize, numbers: &mut Numbers, what: &str) {
    let (mut expected, mut whole, mut part) = (Picture::default(), Picture::default(), Picture::default());
    decode_into(baseline, options, &mut expected).unwrap();
    decode_into(file, options, &mut whole).unwrap();
    assert_eq!((whole.width, whole.height), (expected.width, expected.height), "{what}");
    assert!(whole.bytes() == expected.bytes(), "{what}: the whole picture differs");
    for _ in 0..crops {
        let crop = crop(numbers, expected.width, expected.height);
        let found = decode_part_into(Encoded::Whole(file), crop, options, &mut part).unwrap();
        assert_same(&expected, &part, found, crop, what);
        let bytes = trim_progressive(file, crop, options).unwrap().expect("a complete file can be trimmed");
        let trimmed = Trimmed::read(&bytes).unwrap();
        let (found, header) = (trimmed.header(), read_header(file).unwrap());
        assert_eq!(found, Header { needs_whole: false, ..header }, "{what}: the header");
        let found = decode_part_into(Encoded::Trimmed(&trimmed), crop, options, &mut part).unwrap();
        assert_same(&expected, &part, found, crop, &format!("{what}, trimmed"));
    }
}

#[test]
fn law_8_crops_of_all_kinds_of_scans_are_those_of_a_full_decode() {
    let mut numbers = Numbers(81);
    for size @ (width, height) in SIZES {
        for sampling in SAMPLINGS {
            for coding in SCRIPTS {
                let quality = [3, 40, 85, 97, 100][numbers.below(5) as usize];
                let pixels = picture(&mut numbers, width, height, 3);
                let encode = |coding| encode_jpeg_as(coding, &pixels, (width, height, 3), quality, sampling).unwrap();
                let what = format!("{size:?} {sampling:?} {coding:?} quality {quality}");
                check(&encode(coding), &encode(JpegCoding::Baseline), &options(Mode::Rgb), 8, &mut numbers, &what);
            }
        }
    }
}

#[test]
fn law_8_progressive_crops_of_cmyk_grey_mode_and_turned_pictures_are_those_of_a_full_decode() {
    let mut numbers = Numbers(82);
    for (channels, mode) in [(4, Mode::Rgb), (4, Mode::Grey), (3, Mode::Grey), (1, Mode::Mask), (1, Mode::Rgb)] {
        for sampling in [Subsampling::S444, Subsampling::S420, Subsampling::S422] {
            let (width, height) = (93, 77);
            let pixels = picture(&mut numbers, width, height, channels);
            let encode = |coding| encode_jpeg_as(coding, &pixels, (width, height, channels), 80, sampling).unwrap();
            let what = format!("{channels} channels as {mode:?}, {sampling:?}");
            for orientation in [1, 3, 6] {
                let turn = |file: &[u8]| support::with_exif(file, orientation);
                let (file, baseline) = (turn(&encode(JpegCoding::Progressive)), turn(&encode(JpegCoding::Baseline)));
                check(&file, &baseline, &options(mode), 20, &mut numbers, &what);
            }
        }
    }
}

#[test]
fn approximate_pixels_of_progressive_files_are_those_of_baseline_files() {
    let mut numbers = Numbers(83);
    for sampling in SAMPLINGS {
        for scale in [Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth] {
            let pixels = picture(&mut numbers, 203, 117, 3);
            let encode = |coding| encode_jpeg_as(coding, &pixels, (203, 117, 3), 85, sampling).unwrap();
            let options = DecodeOptions { fast: Some(scale), ..options(Mode::Rgb) };
            let (file, baseline) = (encode(JpegCoding::Progressive), encode(JpegCoding::Baseline));
            check(&file, &baseline, &options, 20, &mut numbers, &format!("{sampling:?} {scale:?}"));
        }
    }
}

#[test]
fn a_progressive_file_cut_anywhere_is_truncated() {
    let mut numbers = Numbers(84);
    let pixels = picture(&mut numbers, 96, 70, 3);
    for coding in [JpegCoding::Progressive, JpegCoding::Scans { bands: 2, refined: 1, restarts: 5 }] {
        let file = encode_jpeg_as(coding, &pixels, (96, 70, 3), 85, Subsampling::S420).unwrap();
        for cut in (200..file.len()).step_by(61).chain(file.len() - 20..file.len()) {
            if read_header(&file[..cut]).is_ok() {
                assert!(decode(&file[..cut], Mode::Rgb).is_err(), "{coding:?} cut at {cut} of {}", file.len());
            }
        }
        let longer = [&file[..], &[7; 30]].concat();
        assert_eq!(decode(&longer, Mode::Rgb).unwrap().bytes(), decode(&file, Mode::Rgb).unwrap().bytes());
    }
}

#[test]
fn missing_scans_and_bytes_between_segments_are_left_to_libjpeg() {
    let mut numbers = Numbers(85);
    let pixels = picture(&mut numbers, 120, 90, 3);
    let file = encode_jpeg_as(JpegCoding::Progressive, &pixels, (120, 90, 3), 85, Subsampling::S420).unwrap();
    let whole = decode(&file, Mode::Rgb).unwrap();
    // The last scan starts with the last table before it. libjpeg smooths a picture without it.
    let tables = |pair: &[u8]| pair == [0xff, 0xc4];
    let last = file.windows(2).rposition(tables).unwrap();
    let shorter = [&file[..last], &[0xff, 0xd9]].concat();
    let smoothed = decode(&shorter, Mode::Rgb).unwrap();
    assert!(smoothed.bytes() != whole.bytes());
    let mut part = Picture::default();
    for _ in 0..20 {
        let crop = crop(&mut numbers, 120, 90);
        let found = decode_part_into(Encoded::Whole(&shorter), crop, &options(Mode::Rgb), &mut part).unwrap();
        assert_same(&smoothed, &part, found, crop, "a missing scan");
    }
    let extra = [&file[..last], &[1, 2, 3], &file[last..]].concat();
    assert_eq!(decode(&extra, Mode::Rgb).unwrap().bytes(), whole.bytes());
}

/// The first segment of the files ends here.
const APP0_END: usize = 20;

/// The file with a byte between its first segments. libjpeg skips it, and no decoder but libjpeg reads such a file.
fn for_libjpeg(file: &[u8]) -> Vec<u8> {
    [&file[..APP0_END], &[1], &file[APP0_END..]].concat()
}

#[test]
fn changed_bytes_are_decoded_or_refused_as_by_libjpeg() {
    let mut numbers = Numbers(86);
    let (mut alike, mut refused) = (0, 0);
    for coding in SCRIPTS {
        for sampling in [Subsampling::S420, Subsampling::S444] {
            let pixels = picture(&mut numbers, 70, 50, 3);
            let file = encode_jpeg_as(coding, &pixels, (70, 50, 3), 85, sampling).unwrap();
            for round in 0..400 {
                let mut changed = file.clone();
                let start = if round % 2 == 0 { APP0_END } else { 600.min(file.len() - 1) };
                let at = start + numbers.below((file.len() - start) as u64) as usize;
                changed[at] = if round % 3 == 0 { numbers.next() as u8 } else { changed[at] ^ 1 << numbers.below(8) };
                let options = DecodeOptions { max_pixels: 1 << 16, ..options(Mode::Rgb) };
                let (mut found, mut expected) = (Picture::default(), Picture::default());
                let result = decode_into(&changed, &options, &mut found);
                let by_libjpeg = decode_into(&for_libjpeg(&changed), &options, &mut expected);
                let what = format!("{coding:?} {sampling:?}, round {round}, byte {at}");
                assert_eq!(result.is_ok(), by_libjpeg.is_ok(), "{what}: {result:?}, libjpeg {by_libjpeg:?}");
                assert!(found.bytes() == expected.bytes(), "{what}: the pixels");
                alike += usize::from(result.is_ok());
                refused += usize::from(result.is_err());
            }
        }
    }
    assert!(alike > 100 && refused > 100, "{alike} decoded, {refused} refused");
}

#[test]
fn other_and_damaged_files_are_not_trimmed_as_progressive_ones() {
    let mut numbers = Numbers(87);
    let pixels = picture(&mut numbers, 70, 50, 3);
    let encode = |coding| encode_jpeg_as(coding, &pixels, (70, 50, 3), 85, Subsampling::S420).unwrap();
    let crop = Rect { left: 5, top: 6, width: 40, height: 30 };
    let trim = |file: &[u8]| trim_progressive(file, crop, &options(Mode::Rgb)).unwrap();
    assert_eq!(trim(&encode(JpegCoding::Baseline)), None);
    let file = encode(JpegCoding::Progressive);
    assert!(trim(&file).is_some());
    assert_eq!(trim(&file[..file.len() - 2]), None);
    assert_eq!(trim(&for_libjpeg(&file)), None);
}

#[test]
fn a_trimmed_progressive_file_is_the_trimmed_baseline_file_in_other_codes() {
    let mut numbers = Numbers(88);
    let pixels = picture(&mut numbers, 303, 217, 3);
    let encode = |coding| encode_jpeg_as(coding, &pixels, (303, 217, 3), 85, Subsampling::S420).unwrap();
    let (progressive, baseline) = (encode(JpegCoding::Progressive), encode(JpegCoding::Baseline));
    let index = SeekIndex::build(&baseline).unwrap();
    for _ in 0..20 {
        let crop = crop(&mut numbers, 303, 217);
        let trimmed = trim_progressive(&progressive, crop, &options(Mode::Rgb)).unwrap().unwrap();
        let expected = index.trim(crop, &options(Mode::Rgb), &baseline, 0).unwrap();
        // The codes are made for the crop, and their definition is a part of it.
        assert!(trimmed.len() < expected.len() + 400, "{} and {} bytes", trimmed.len(), expected.len());
    }
}
