//! Crops of trimmed pictures have exactly the pixels of a full decode. A crop outside the trimmed part is an error.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use feedline_codec::{
    BadTrimmed, CodecError, DecodeOptions, Encoded, JpegCoding, Mode, Picture, Rect, Scale, SeekIndex, Subsampling,
    Trimmed, decode_into, decode_part_into, encode_jpeg_as, read_header,
};
use support::{CODINGS, Numbers, SAMPLINGS, assert_same, crop, every_flavour, options, picture};

const SCALES: [Option<Scale>; 5] =
    [None, Some(Scale::Full), Some(Scale::Half), Some(Scale::Quarter), Some(Scale::Eighth)];

/// Trims a file for crops. Compares these crops, crops inside them, and random others.
#[track_caller]
fn check(file: &[u8], options: &DecodeOptions<'_>, crops: usize, numbers: &mut Numbers, what: &str) {
    let (mut whole, mut part) = (Picture::default(), Picture::default());
    decode_into(file, options, &mut whole).unwrap();
    let index = SeekIndex::build(file).unwrap();
    for number in 0..crops {
        let all = Rect::whole(whole.width, whole.height);
        let wanted = if number == 0 { all } else { crop(numbers, whole.width, whole.height) };
        let bytes = index.trim(wanted, options, file, 0).unwrap();
        let range = index.bytes_for(wanted, options).unwrap();
        let named = &file[range.start as usize..range.end as usize];
        assert_eq!(index.trim(wanted, options, named, range.start).unwrap(), bytes, "{what}: of the bytes named");
        let trimmed = Trimmed::read(&bytes).unwrap();
        assert_eq!(trimmed.header(), read_header(file).unwrap(), "{what}: header");

        let encoded = Encoded::Trimmed(&trimmed);
        let found = decode_part_into(encoded, wanted, options, &mut part).unwrap();
        assert_same(&whole, &part, found, wanted, what);
        let inside = crop(numbers, wanted.width, wanted.height);
        let inside = Rect { left: wanted.left + inside.left, top: wanted.top + inside.top, ..inside };
        for other in [inside, crop(numbers, whole.width, whole.height), all] {
            match decode_part_into(encoded, other, options, &mut part) {
                Ok(found) => assert_same(&whole, &part, found, other, &format!("{what}, trimmed for {wanted:?}")),
                Err(error) => assert!(matches!(error, CodecError::Trimmed(_)), "{what}: {error}"),
            }
        }
    }
}

#[test]
fn law_8_trimmed_crops_of_every_flavour_are_those_of_a_full_decode() {
    every_flavour(&mut Numbers(51), |file, numbers, what| {
        let fast = SCALES[numbers.below(5) as usize];
        for fast in [None, fast] {
            check(file, &DecodeOptions { fast, ..options(Mode::Rgb) }, 12, numbers, &format!("{what} {fast:?}"));
        }
    });
}

#[test]
fn law_8_trimmed_crops_of_larger_pictures_are_those_of_a_full_decode_at_every_scale() {
    let mut numbers = Numbers(52);
    for sampling in SAMPLINGS {
        for fast in SCALES {
            let coding = CODINGS[numbers.below(8) as usize];
            let pixels = picture(&mut numbers, 303, 217, 3);
            let file = encode_jpeg_as(coding, &pixels, (303, 217, 3), 85, sampling).unwrap();
            let what = format!("{sampling:?} {coding:?} {fast:?}");
            check(&file, &DecodeOptions { fast, ..options(Mode::Rgb) }, 40, &mut numbers, &what);
        }
    }
}

#[test]
fn law_8_trimmed_crops_of_cmyk_grey_and_turned_pictures_are_those_of_a_full_decode() {
    let mut numbers = Numbers(53);
    for fast in SCALES {
        for sampling in [Subsampling::S444, Subsampling::S420, Subsampling::S422] {
            let pixels = picture(&mut numbers, 93, 77, 4);
            let file = encode_jpeg_as(JpegCoding::Optimised, &pixels, (93, 77, 4), 80, sampling).unwrap();
            for mode in [Mode::Rgb, Mode::Grey] {
                let what = format!("YCCK {sampling:?} {fast:?} {mode:?}");
                check(&file, &DecodeOptions { fast, ..options(mode) }, 10, &mut numbers, &what);
            }
        }
        for number in 1..=8_u8 {
            let pixels = picture(&mut numbers, 90, 61, 3);
            let file = encode_jpeg_as(JpegCoding::Baseline, &pixels, (90, 61, 3), 80, Subsampling::S420).unwrap();
            let file = support::with_exif(&file, number);
            for exif in [true, false] {
                let what = format!("orientation {number} {fast:?} applied {exif}");
                check(&file, &DecodeOptions { fast, exif, ..options(Mode::Rgb) }, 10, &mut numbers, &what);
            }
        }
    }
}

#[test]
fn narrow_crops_of_trimmed_pictures_are_the_same_at_every_scale() {
    let mut numbers = Numbers(54);
    for sampling in [Subsampling::S422, Subsampling::S420, Subsampling::S411] {
        for width in 64..=100 {
            let pixels = picture(&mut numbers, width, 24, 3);
            let file = encode_jpeg_as(JpegCoding::Baseline, &pixels, (width, 24, 3), 85, sampling).unwrap();
            let index = SeekIndex::build(&file).unwrap();
            for fast in SCALES {
                let options = DecodeOptions { fast, ..options(Mode::Rgb) };
                let (mut whole, mut part) = (Picture::default(), Picture::default());
                decode_into(&file, &options, &mut whole).unwrap();
                for columns in 1..=4.min(whole.width) {
                    for left in [0, (whole.width - columns) / 2, whole.width - columns] {
                        let crop = Rect { left, top: 0, width: columns, height: whole.height };
                        let bytes = index.trim(crop, &options, &file, 0).unwrap();
                        let encoded = Trimmed::read(&bytes).unwrap();
                        let found = decode_part_into(Encoded::Trimmed(&encoded), crop, &options, &mut part).unwrap();
                        assert_same(&whole, &part, found, crop, &format!("{width} {sampling:?} {fast:?} {columns}"));
                    }
                }
            }
        }
    }
}

#[test]
fn plain_pixels_are_trimmed_to_the_very_crop() {
    let mut numbers = Numbers(55);
    for (channels, magic, mode) in [(3, "P6", Mode::Rgb), (1, "P5", Mode::Mask), (1, "P5", Mode::Rgb)] {
        let pixels = picture(&mut numbers, 50, 40, channels);
        let file = [format!("{magic}\n# made by a test\n50 40\n255\n").as_bytes(), &pixels].concat();
        for fast in [None, Some(Scale::Half)] {
            check(&file, &DecodeOptions { fast, ..options(mode) }, 50, &mut numbers, magic);
        }
        let crop = Rect { left: 3, top: 10, width: 5, height: 7 };
        let bytes = SeekIndex::build(&file).unwrap().trim(crop, &options(mode), &file, 0).unwrap();
        assert_eq!(bytes.len(), 5 * 7 * usize::from(channels) + 25, "pixels, header and checksum");
    }
}

/// A file, an index of it, and a crop in its middle.
fn example(sampling: Subsampling, coding: JpegCoding) -> (Vec<u8>, SeekIndex, Rect) {
    let pixels = picture(&mut Numbers(56), 160, 120, 3);
    let file = encode_jpeg_as(coding, &pixels, (160, 120, 3), 85, sampling).unwrap();
    let index = SeekIndex::build(&file).unwrap();
    (file, index, Rect { left: 33, top: 34, width: 63, height: 30 })
}

#[test]
fn a_trimmed_picture_has_the_bits_of_its_mcus_and_little_else() {
    let (file, index, crop) = example(Subsampling::S444, JpegCoding::Baseline);
    let bytes = index.trim(crop, &options(Mode::Rgb), &file, 0).unwrap();
    // 8 of 20 columns and 4 of 15 rows; header and tables take 150 bytes, rows 8 each.
    let share = file.len() * 8 * 4 / (20 * 15);
    assert!(bytes.len() < share * 11 / 10 + 200, "{} of {}, of which {share} are needed", bytes.len(), file.len());
}

#[test]
fn a_smaller_picture_needs_fewer_bytes_and_cannot_become_a_larger_one() {
    let (file, index, _) = example(Subsampling::S420, JpegCoding::Baseline);
    let mut last = file.len();
    for scale in [Scale::Half, Scale::Quarter, Scale::Eighth] {
        let options = DecodeOptions { fast: Some(scale), ..options(Mode::Rgb) };
        let (width, height) = index.header().size_at(scale);
        let bytes = index.trim(Rect::whole(width, height), &options, &file, 0).unwrap();
        assert!(bytes.len() < last, "{scale:?}: {} bytes after {last}", bytes.len());
        last = bytes.len();
        let trimmed = Trimmed::read(&bytes).unwrap();
        let exact = DecodeOptions { fast: None, ..options };
        let error =
            decode_part_into(Encoded::Trimmed(&trimmed), Rect::whole(160, 120), &exact, &mut Picture::default());
        assert!(error.unwrap_err().to_string().contains("coefficients"), "{scale:?}");
        let smaller = DecodeOptions { fast: Some(Scale::Eighth), ..options };
        let (mut whole, mut part) = (Picture::default(), Picture::default());
        decode_into(&file, &smaller, &mut whole).unwrap();
        let all = Rect::whole(whole.width, whole.height);
        let found = decode_part_into(Encoded::Trimmed(&trimmed), all, &smaller, &mut part).unwrap();
        assert_same(&whole, &part, found, all, &format!("an eighth of {scale:?}"));
    }
}

#[test]
fn a_changed_or_missing_byte_is_noticed() {
    let (file, index, crop) = example(Subsampling::S420, JpegCoding::Restarts(3));
    for fast in [None, Some(Scale::Half)] {
        let crop = if fast.is_some() { Rect { left: 10, top: 10, width: 40, height: 20 } } else { crop };
        let bytes = index.trim(crop, &DecodeOptions { fast, ..options(Mode::Rgb) }, &file, 0).unwrap();
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 1 << (place % 8);
            let refused: Result<Trimmed<'_>, BadTrimmed> = Trimmed::read(&changed);
            assert!(refused.is_err(), "byte {place}");
            assert!(Trimmed::read(&bytes[..place]).is_err(), "cut at {place}");
        }
    }
}

#[test]
fn forged_trimmed_pictures_give_pixels_or_errors() {
    let mut numbers = Numbers(57);
    for (sampling, coding) in [(Subsampling::S420, JpegCoding::Restarts(3)), (Subsampling::S444, JpegCoding::Optimised)]
    {
        let (file, index, _) = example(sampling, coding);
        for fast in SCALES {
            let options = DecodeOptions { fast, max_pixels: 1 << 16, ..options(Mode::Rgb) };
            let crop = Rect { left: 5, top: 5, width: 12, height: 9 };
            let bytes = index.trim(crop, &options, &file, 0).unwrap();
            let content = &bytes[..bytes.len() - 8];
            let mut read = 0;
            for _ in 0..3000 {
                let mut forged = content.to_vec();
                for _ in 0..=numbers.below(3) {
                    let end = if numbers.below(2) == 0 { forged.len() } else { forged.len().min(60) };
                    let place = numbers.below(end as u64) as usize;
                    forged[place] = numbers.next() as u8;
                }
                let forged = Trimmed::forged(&forged);
                let Ok(trimmed) = Trimmed::read(&forged) else { continue };
                let (width, height) = trimmed.header().size_at(fast.unwrap_or_default());
                let (width, height) = trimmed.header().orientation.seen_size(width, height);
                let mut part = Picture::default();
                for crop in [crop, Rect::whole(width, height)] {
                    if crop.is_inside(width, height) {
                        read += usize::from(
                            decode_part_into(Encoded::Trimmed(&trimmed), crop, &options, &mut part).is_ok(),
                        );
                    }
                }
            }
            assert!(read > 0, "some changes still give pixels");
        }
    }
}

#[test]
fn a_byte_that_was_changed_since_the_index_is_noticed_wherever_it_is_without_trimming() {
    let mut numbers = Numbers(58);
    let (file, index, _) = example(Subsampling::S420, JpegCoding::Baseline);
    for fast in [None, Some(Scale::Half)] {
        let options = DecodeOptions { fast, ..options(Mode::Rgb) };
        let (width, height) = index.header().size_at(fast.unwrap_or_default());
        let (mut noticed, mut part) = (0, Picture::default());
        for _ in 0..2000 {
            let crop = crop(&mut numbers, width, height);
            let range = index.bytes_for(crop, &options).unwrap();
            let place = (range.start + numbers.below(range.end - range.start)) as usize;
            let mut changed = file.clone();
            changed[place] ^= 1 << numbers.below(8);
            let indexed = Encoded::Indexed { bytes: &changed, offset: 0, index: &index };
            let is_noticed = decode_part_into(indexed, crop, &options, &mut part).is_err();
            let trimmed = index.trim(crop, &options, &changed, 0).and_then(|bytes| {
                decode_part_into(Encoded::Trimmed(&Trimmed::read(&bytes)?), crop, &options, &mut part)
            });
            assert!(!is_noticed || trimmed.is_err(), "{fast:?} {crop:?} byte {place}");
            noticed += usize::from(is_noticed);
        }
        assert!(noticed > 200, "{noticed} noticed");
    }
}

#[test]
fn bytes_that_are_missing_or_changed_between_restarts_give_a_trimmed_picture_or_an_error() {
    let mut numbers = Numbers(59);
    for coding in [JpegCoding::Baseline, JpegCoding::Restarts(3)] {
        let (file, index, crop) = example(Subsampling::S420, coding);
        let options = options(Mode::Rgb);
        let range = index.bytes_for(crop, &options).unwrap();
        let (mut errors, mut part) = (0, Picture::default());
        for _ in 0..400 {
            let place = (range.start + numbers.below(range.end - range.start)) as usize;
            let mut changed = file.clone();
            changed[place] ^= 1 << numbers.below(8);
            let decoded = index.trim(crop, &options, &changed, 0).and_then(|bytes| {
                decode_part_into(Encoded::Trimmed(&Trimmed::read(&bytes)?), crop, &options, &mut part)
            });
            errors += usize::from(decoded.is_err());
        }
        assert!((1..400).contains(&errors), "{coding:?}: {errors} of 400");
        for end in [0, range.start, range.start + 9, range.end - 1] {
            assert!(index.trim(crop, &options, &file[..end as usize], 0).is_err(), "cut at {end}");
        }
    }
}

#[test]
fn a_block_brighter_than_any_picture_is_not_re_encoded_for_a_smaller_one() {
    // White, with a quantiser that multiplies it far beyond the range: the decoder's shortcut wraps around, its full path saturates.
    let file = encode_jpeg_as(JpegCoding::Baseline, &[255; 64 * 16], (64, 16, 1), 100, Subsampling::Grey).unwrap();
    let table = file.windows(2).position(|marker| marker == [0xff, 0xdb]).unwrap() + 5;
    let with = |quantiser: u8| [&file[..table], &[quantiser], &file[table + 1..]].concat();
    let crop = Rect { left: 0, top: 0, width: 32, height: 8 };
    let small = DecodeOptions { fast: Some(Scale::Half), ..options(Mode::Rgb) };
    for (quantiser, can_be_trimmed) in [(1, true), (7, true), (9, false), (255, false)] {
        let file = with(quantiser);
        let index = SeekIndex::build(&file).unwrap();
        let range = index.bytes_for(crop, &small).unwrap();
        let bytes = &file[range.start as usize..range.end as usize];
        assert_eq!(index.trim(crop, &small, bytes, range.start).is_ok(), can_be_trimmed, "{quantiser}");
        let whole = Rect { left: 0, top: 0, width: 64, height: 16 };
        let range = index.bytes_for(whole, &options(Mode::Rgb)).unwrap();
        let bytes = &file[range.start as usize..range.end as usize];
        assert!(
            index.trim(whole, &options(Mode::Rgb), bytes, range.start).is_ok(),
            "unchanged bits can always be sent"
        );
    }
}
