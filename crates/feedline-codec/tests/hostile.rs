//! Hostile bytes give errors, never a panic, unlimited memory or a hang.

#![allow(clippy::unwrap_used, reason = "helpers of tests are outside of #[test] functions")]

mod support;

use std::cell::Cell;

use feedline_codec::{
    CodecError, DecodeOptions, Encoded, JpegCoding, Mode, Picture, Subsampling, TiffCoding, TiffPacking, WebPCoding,
    decode_into, decode_part_into, encode_jpeg, encode_jpeg_as, encode_png, encode_tiff, encode_webp, read_header,
};
use support::{Numbers, animated_webp, bmp, crop, decode, deep_png, gif, gradient, interlaced_png, options, webp};

/// One file of each format and coding.
fn files() -> Vec<Vec<u8>> {
    let (width, height) = (96, 70);
    let pixels = gradient(width, height, 3);
    let jpeg = |coding| encode_jpeg_as(coding, &pixels, (width, height, 3), 90, Subsampling::S420).unwrap();
    let tiff = |coding| encode_tiff(&pixels, width, height, 3, coding).unwrap();
    vec![
        jpeg(JpegCoding::Baseline),
        jpeg(JpegCoding::Progressive),
        jpeg(JpegCoding::Arithmetic),
        encode_png(&pixels, width, height, 3).unwrap(),
        webp(&pixels, width, height, None),
        encode_webp(&pixels, width, height, WebPCoding::Lossy(80)).unwrap(),
        animated_webp((width + 5, height), &webp(&pixels, width, height, None), 4, 0),
        bmp(&pixels, width, height, image::ExtendedColorType::Rgb8),
        gif(&pixels, width, height),
        interlaced_png(&gradient(width, height, 1), width, height),
        deep_png(&pixels, width, height),
        bmp(&gradient(width, height, 1), width, height, image::ExtendedColorType::L8),
        tiff(TiffCoding { packing: TiffPacking::Deflate, ..TiffCoding::default() }),
        tiff(TiffCoding { packing: TiffPacking::Lzw, tile: Some((32, 16)), is_deep: true, ..TiffCoding::default() }),
        tiff(TiffCoding { packing: TiffPacking::PackBits, is_planar: true, ..TiffCoding::default() }),
    ]
}

#[test]
fn a_file_cut_anywhere_is_an_error_or_a_whole_picture() {
    for bytes in files() {
        let whole = decode(&bytes, Mode::Rgb).unwrap();
        let format = read_header(&bytes).unwrap().format;
        for cut in (0..bytes.len()).step_by(97).chain(bytes.len().saturating_sub(40)..bytes.len()) {
            if let Ok(picture) = decode(&bytes[..cut], Mode::Rgb) {
                assert_eq!(picture.bytes(), whole.bytes(), "{format} cut at {cut} of {}", bytes.len());
            }
        }
    }
}

#[test]
fn a_jpeg_cut_in_the_middle_of_its_pixels_is_truncated() {
    for bytes in &files()[..3] {
        let error = decode(&bytes[..bytes.len() * 3 / 4], Mode::Rgb).unwrap_err();
        assert!(matches!(error, CodecError::Truncated { .. }), "{error}");
    }
}

#[test]
fn a_baseline_jpeg_that_lacks_only_its_end_marker_is_whole() {
    let bytes = &files()[0];
    let whole = decode(bytes, Mode::Rgb).unwrap();
    assert_eq!(decode(&bytes[..bytes.len() - 2], Mode::Rgb).unwrap().bytes(), whole.bytes());
}

#[test]
fn bytes_between_jpeg_segments_and_after_the_end_are_harmless() {
    let bytes = &files()[0];
    let whole = decode(bytes, Mode::Rgb).unwrap();
    let mut longer = bytes.clone();
    longer.extend([0; 100]);
    assert_eq!(decode(&longer, Mode::Rgb).unwrap().bytes(), whole.bytes());
    // After the APP0 segment.
    let mut odd = bytes.clone();
    odd.splice(20..20, [1, 2, 3]);
    assert_eq!(decode(&odd, Mode::Rgb).unwrap().bytes(), whole.bytes());
}

#[test]
fn changed_bytes_never_panic() {
    let mut numbers = Numbers(0x0123_4567_89ab_cdef);
    for bytes in files() {
        for round in 0..1500 {
            let mut changed = bytes.clone();
            for _ in 0..=numbers.below(4) {
                // Half of the changes hit the headers.
                let end = if round % 2 == 0 { changed.len() } else { changed.len().min(700) };
                let at = numbers.below(end as u64) as usize;
                changed[at] = numbers.next() as u8;
            }
            let mode = [Mode::Rgb, Mode::Grey, Mode::Mask, Mode::Rgb16, Mode::Grey16][round % 5];
            let mut picture = Picture::default();
            let options = DecodeOptions { max_pixels: 1 << 20, ..options(mode) };
            if decode_into(&changed, &options, &mut picture).is_ok() {
                let header = read_header(&changed).unwrap();
                assert_eq!(picture.len(), (header.width * header.height) as usize * usize::from(mode.pixel_bytes()));
            }
            if let Ok(header) = read_header(&changed) {
                let crop = crop(&mut numbers, header.width, header.height);
                let options = DecodeOptions { exif: false, ..options };
                if let Ok(found) = decode_part_into(Encoded::Whole(&changed), crop, &options, &mut picture) {
                    assert!(found.contains(&crop), "{found:?} does not contain {crop:?}");
                    assert_eq!((picture.width, picture.height), (found.width, found.height));
                }
            }
        }
    }
}

proptest::proptest! {
    #[test]
    fn any_bytes_after_any_magic_never_panic(magic in 0..15_usize, tail in proptest::collection::vec(0..=255_u8, 0..400)) {
        let mut bytes = files()[magic][..30].to_vec();
        bytes.extend(tail);
        let mut picture = Picture::default();
        let options = DecodeOptions { max_pixels: 1 << 20, ..options(Mode::Rgb) };
        let result = decode_into(&bytes, &options, &mut picture);
        assert_eq!(result.is_err(), picture.is_empty());
    }
}

#[test]
fn the_limit_is_checked_before_memory_is_taken() {
    let mut png = encode_png(&[0; 3], 1, 1, 3).unwrap();
    png[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
    let mut jpeg = encode_jpeg(&[0; 3], 1, 1, 3, 90, Subsampling::S444).unwrap();
    let frame = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0xff, 0x00, 0xff, 0x00]);
    for bytes in [png, jpeg] {
        let mut picture = Picture::default();
        let error = decode_into(&bytes, &options(Mode::Rgb), &mut picture).unwrap_err();
        assert!(matches!(error, CodecError::TooManyPixels { .. }), "{error}");
        assert!(error.to_string().contains("raise max_pixels"), "{error}");
        assert_eq!(picture.pixels.capacity(), 0);
    }
}

#[test]
fn a_picture_of_just_the_limit_is_decoded() {
    let bytes = encode_png(&gradient(10, 10, 3), 10, 10, 3).unwrap();
    let mut picture = Picture::default();
    for (max_pixels, is_ok) in [(100, true), (99, false)] {
        let options = DecodeOptions { max_pixels, ..options(Mode::Rgb) };
        assert_eq!(decode_into(&bytes, &options, &mut picture).is_ok(), is_ok);
    }
}

#[test]
fn a_jpeg_of_scans_without_end_is_damaged() {
    let grey = gradient(64, 64, 1);
    let bytes = encode_jpeg_as(JpegCoding::Progressive, &grey, (64, 64, 1), 90, Subsampling::Grey).unwrap();
    let start = bytes.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap();
    let is_marker = |pair: &[u8]| pair[0] == 0xff && pair[1] != 0 && !(0xd0..=0xd7).contains(&pair[1]);
    let end = start + 2 + bytes[start + 2..].windows(2).position(is_marker).unwrap();
    let mut scan = bytes[start..end].to_vec();
    // With no bits left to refine, the same scan may be repeated any number of times.
    scan[9] = 0;
    for (count, is_ok) in [(500, true), (501, false)] {
        let mut bomb = bytes[..start].to_vec();
        bomb.extend(scan.repeat(count));
        bomb.extend([0xff, 0xd9]);
        match decode(&bomb, Mode::Rgb) {
            Ok(_) => assert!(is_ok, "{count} scans"),
            Err(error) => {
                assert!(!is_ok, "{count} scans: {error}");
                assert!(error.to_string().contains("more than 500 scans"), "{error}");
            }
        }
    }
}

#[test]
fn a_jpeg_without_tables_does_not_get_those_of_the_picture_before() {
    let bytes = &files()[0];
    let mut without = bytes.clone();
    while let Some(at) = without.windows(2).position(|pair| pair == [0xff, 0xdb]) {
        let length = usize::from(u16::from_be_bytes([without[at + 2], without[at + 3]]));
        without.drain(at..at + 2 + length);
    }
    decode(bytes, Mode::Rgb).unwrap();
    let error = decode(&without, Mode::Rgb).unwrap_err();
    assert!(error.to_string().contains("Quantization table"), "{error}");
}

#[test]
fn cancel_ends_decoding_wherever_it_is_checked() {
    let (width, height) = (1500, 1200);
    let pixels = gradient(width, height, 3);
    let jpeg = |coding| encode_jpeg_as(coding, &pixels, (width, height, 3), 90, Subsampling::S420).unwrap();
    let files = [
        (jpeg(JpegCoding::Baseline), 5),
        (jpeg(JpegCoding::Progressive), 20),
        (encode_png(&pixels, width, height, 3).unwrap(), 10),
        (webp(&pixels, width, height, None), 2),
        (gif(&pixels, width, height), 2),
    ];
    for (bytes, at_least) in files {
        let asked = Cell::new(0);
        let until = Cell::new(usize::MAX);
        let cancel = || {
            asked.set(asked.get() + 1);
            asked.get() > until.get()
        };
        let options = DecodeOptions { cancel: &cancel, ..options(Mode::Rgb) };
        let mut picture = Picture::default();
        decode_into(&bytes, &options, &mut picture).unwrap();
        let times = asked.get();
        let format = read_header(&bytes).unwrap().format;
        assert!(times >= at_least, "{format} asked {times} times");
        for stop in [0, 1, times / 2, times - 1] {
            asked.set(0);
            until.set(stop);
            let error = decode_into(&bytes, &options, &mut picture).unwrap_err();
            assert!(matches!(error, CodecError::Cancelled), "{format}: {error}");
            assert!(picture.is_empty());
        }
    }
}
