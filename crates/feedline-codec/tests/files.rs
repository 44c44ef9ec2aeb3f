//! Whole files: encoding and decoding gives the picture back, in every format and mode.

mod support;

use feedline_codec::{
    CodecError, DecodeOptions, Format, JpegCoding, Mode, Orientation, Picture, Subsampling, decode_into, encode_jpeg,
    encode_jpeg_as, encode_png, read_header,
};
use png::{BitDepth, ColorType};
use support::{assert_near, bmp, decode, exif, gif, gradient, interlaced_png, options, png_of, webp, with_exif};

const SIZES: [(u32, u32); 6] = [(1, 1), (7, 5), (8, 8), (17, 33), (64, 48), (301, 200)];

#[test]
fn a_jpeg_comes_back_nearly_the_same_for_every_coding_and_subsampling() {
    for (width, height) in SIZES {
        let pixels = gradient(width, height, 3);
        for coding in [JpegCoding::Baseline, JpegCoding::Progressive, JpegCoding::Arithmetic] {
            for subsampling in [Subsampling::S444, Subsampling::S422, Subsampling::S420] {
                let bytes = encode_jpeg_as(coding, &pixels, (width, height, 3), 98, subsampling).unwrap();
                let header = read_header(&bytes).unwrap();
                assert_eq!((header.format, header.width, header.height), (Format::Jpeg, width, height));
                let picture = decode(&bytes, Mode::Rgb).unwrap();
                assert_eq!((picture.width, picture.height, picture.channels), (width, height, 3));
                let most = if subsampling == Subsampling::S444 || width > 32 { 8 } else { 60 };
                assert_near(picture.bytes(), &pixels, most);
            }
        }
    }
}

#[test]
fn codings_of_the_same_coefficients_give_the_same_pixels() {
    let pixels = gradient(123, 77, 3);
    let all = [JpegCoding::Baseline, JpegCoding::Progressive, JpegCoding::Arithmetic].map(|coding| {
        let bytes = encode_jpeg_as(coding, &pixels, (123, 77, 3), 80, Subsampling::S420).unwrap();
        decode(&bytes, Mode::Rgb).unwrap().bytes().to_vec()
    });
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0], all[2]);
}

#[test]
fn a_grey_jpeg_is_grey_as_rgb_and_exact_as_mask() {
    let pixels = gradient(40, 30, 1);
    let bytes = encode_jpeg(&pixels, 40, 30, 1, 100, Subsampling::Grey).unwrap();
    let grey = decode(&bytes, Mode::Grey).unwrap();
    assert_near(grey.bytes(), &pixels, 2);
    assert_eq!(decode(&bytes, Mode::Mask).unwrap().bytes(), grey.bytes());
    let rgb = decode(&bytes, Mode::Rgb).unwrap();
    assert!(rgb.bytes().chunks(3).zip(grey.bytes()).all(|(rgb, &grey)| rgb == [grey; 3]));
    let from_rgb = encode_jpeg(&gradient(40, 30, 3), 40, 30, 3, 90, Subsampling::Grey).unwrap();
    assert!(decode(&from_rgb, Mode::Mask).is_ok(), "RGB pixels stored as grey");
}

#[test]
fn a_cmyk_jpeg_becomes_rgb() {
    let mut pixels = Vec::new();
    for x in 0..64_u32 {
        // Stored inverted: 255 is no ink.
        pixels.extend([255 - x as u8 * 2, 255, 200, 255]);
    }
    let pixels: Vec<u8> = pixels.repeat(64);
    for subsampling in [Subsampling::S444, Subsampling::S420] {
        let bytes = encode_jpeg_as(JpegCoding::Baseline, &pixels, (64, 64, 4), 100, subsampling).unwrap();
        let picture = decode(&bytes, Mode::Rgb).unwrap();
        let expected: Vec<u8> = pixels.chunks(4).flat_map(|cmyk| [cmyk[0], cmyk[1], cmyk[2]]).collect();
        assert_near(picture.bytes(), &expected, 6);
        assert_eq!(decode(&bytes, Mode::Grey).unwrap().channels, 1);
        let error = decode(&bytes, Mode::Mask).unwrap_err();
        assert!(matches!(error, CodecError::NotAMask { .. }), "{error}");
    }
}

#[test]
fn a_png_comes_back_exactly_and_alpha_is_dropped() {
    for (width, height) in SIZES {
        for channels in [1_u8, 2, 3, 4] {
            let pixels = gradient(width, height, channels);
            let bytes = encode_png(&pixels, width, height, channels).unwrap();
            let header = read_header(&bytes).unwrap();
            assert_eq!((header.format, header.width, header.height), (Format::Png, width, height));
            let expected: Vec<u8> = match channels {
                1 | 2 => pixels.chunks(channels.into()).flat_map(|pixel| [pixel[0]; 3]).collect(),
                _ => pixels.chunks(channels.into()).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect(),
            };
            assert_eq!(decode(&bytes, Mode::Rgb).unwrap().bytes(), expected);
            let mask = decode(&bytes, Mode::Mask);
            assert_eq!(mask.is_ok(), channels == 1, "{channels} channels as a mask");
            assert_eq!(decode(&bytes, Mode::Grey).unwrap().channels, 1);
        }
    }
}

#[test]
fn a_palette_png_gives_colours_or_indices() {
    let palette: Vec<u8> = (0..16).flat_map(|i| [i * 10, i * 3, 255 - i]).collect();
    for depth in [BitDepth::One, BitDepth::Two, BitDepth::Four, BitDepth::Eight] {
        let bits = depth as u32;
        let width = 13;
        let index = |x: u32, y: u32| (x * 5 + y * 3) as u8 % (1 << bits.min(4));
        let mut data = Vec::new();
        for y in 0..9 {
            let mut row = vec![0; (width * bits).div_ceil(8) as usize];
            for x in 0..width {
                let shift = 8 - bits - x * bits % 8;
                row[(x * bits / 8) as usize] |= index(x, y) << shift;
            }
            data.extend(row);
        }
        let kind = (ColorType::Indexed, depth);
        let entries = (3 << bits).min(palette.len());
        let bytes = png_of(&data, (width, 9), kind, |info| info.palette = Some(palette[..entries].to_vec().into()));
        let expected: Vec<u8> = (0..9).flat_map(|y| (0..width).map(move |x| index(x, y))).collect();
        assert_eq!(decode(&bytes, Mode::Mask).unwrap().bytes(), expected, "{bits} bits");
        let colours: Vec<u8> =
            expected.iter().flat_map(|&i| palette[usize::from(i) * 3..][..3].iter().copied()).collect();
        assert_eq!(decode(&bytes, Mode::Rgb).unwrap().bytes(), colours, "{bits} bits");
    }
}

#[test]
fn an_interlaced_png_comes_back_exactly() {
    for (width, height) in [(1, 1), (3, 2), (8, 8), (37, 29), (100, 64)] {
        let pixels = gradient(width, height, 1);
        let bytes = interlaced_png(&pixels, width, height);
        assert_eq!(decode(&bytes, Mode::Mask).unwrap().bytes(), pixels);
        assert_eq!(decode(&bytes, Mode::Grey).unwrap().bytes(), pixels);
        assert_eq!(
            decode(&bytes, Mode::Rgb).unwrap().bytes(),
            pixels.iter().flat_map(|&grey| [grey; 3]).collect::<Vec<_>>()
        );
    }
}

#[test]
fn sixteen_bit_channels_keep_their_high_byte() {
    let data: Vec<u8> = (0..6 * 4).flat_map(|i| [i * 9, 255 - i]).collect();
    let bytes = png_of(&data, (6, 4), (ColorType::Grayscale, BitDepth::Sixteen), |_| {});
    let high: Vec<u8> = data.iter().copied().step_by(2).collect();
    assert_eq!(decode(&bytes, Mode::Mask).unwrap().bytes(), high);
    assert_eq!(decode(&bytes, Mode::Grey).unwrap().bytes(), high);
}

#[test]
fn lossless_webp_bmp_and_gif_come_back() {
    for (width, height) in SIZES {
        let pixels = gradient(width, height, 3);
        let files = [
            (Format::WebP, webp(&pixels, width, height, None), 0),
            (Format::Bmp, bmp(&pixels, width, height, image::ExtendedColorType::Rgb8), 0),
            (Format::Gif, gif(&pixels, width, height), 40),
        ];
        for (format, bytes, most) in files {
            let header = read_header(&bytes).unwrap();
            assert_eq!((header.format, header.width, header.height), (format, width, height));
            assert_near(decode(&bytes, Mode::Rgb).unwrap().bytes(), &pixels, most);
            assert_eq!(decode(&bytes, Mode::Grey).unwrap().len(), (width * height) as usize);
            assert!(decode(&bytes, Mode::Mask).is_err(), "{format} in colour as a mask");
        }
    }
}

#[test]
fn a_palette_bmp_gives_indices_as_a_mask() {
    let pixels = gradient(21, 9, 1);
    let bytes = bmp(&pixels, 21, 9, image::ExtendedColorType::L8);
    assert_eq!(decode(&bytes, Mode::Mask).unwrap().bytes(), pixels);
}

#[test]
fn a_bmp_of_few_bits_is_refused_as_a_mask_and_does_not_panic() {
    let mut bytes = b"BM\0\0\0\0\0\0\0\0\x3e\0\0\0\x28\0\0\0".to_vec();
    bytes.extend(40_u32.to_le_bytes());
    bytes.extend(2_u32.to_le_bytes());
    bytes.extend([1, 0, 1, 0]);
    bytes.extend([0; 24]);
    // Black and white, then two rows of 40 bits, each filled up to eight bytes.
    bytes.extend([0, 0, 0, 0, 255, 255, 255, 0]);
    bytes.extend([0xaa; 16]);
    assert_eq!(decode(&bytes, Mode::Rgb).unwrap().bytes()[..6], [255, 255, 255, 0, 0, 0]);
    assert!(matches!(decode(&bytes, Mode::Mask).unwrap_err(), CodecError::Unsupported { .. }));
}

#[test]
fn the_exif_orientation_is_read_in_each_format_and_applied_if_requested() {
    let (width, height) = (24_u32, 16_u32);
    let pixels = gradient(width, height, 3);
    let plain = encode_jpeg(&pixels, width, height, 3, 95, Subsampling::S444).unwrap();
    let upright = decode(&plain, Mode::Rgb).unwrap();
    for orientation in 1..=8_u8 {
        let kind = (ColorType::Rgb, BitDepth::Eight);
        let files = [
            with_exif(&plain, orientation),
            png_of(&pixels, (width, height), kind, |info| info.exif_metadata = Some(exif(orientation).into())),
            webp(&pixels, width, height, Some(exif(orientation))),
        ];
        for bytes in files {
            let header = read_header(&bytes).unwrap();
            assert_eq!(header.orientation.exif(), orientation, "{}", header.format);
            assert_eq!((header.width, header.height), (width, height));
            let seen = decode(&bytes, Mode::Rgb).unwrap();
            assert_eq!((seen.width, seen.height), header.orientation.seen_size(width, height));

            let mut stored = Picture::default();
            decode_into(&bytes, &DecodeOptions { exif: false, ..options(Mode::Rgb) }, &mut stored).unwrap();
            assert_eq!((stored.width, stored.height), (width, height));
            let from = if header.format == Format::Jpeg { upright.bytes() } else { &pixels };
            assert_eq!(stored.bytes(), from, "{} {orientation}", header.format);
            // The place of the first stored pixel in the upright picture, by EXIF.
            let (right, bottom) = (seen.width - 1, seen.height - 1);
            let (x, y) = [(0, 0), (right, 0), (right, bottom), (0, bottom)][usize::from(match orientation {
                1 | 5 => 0_u8,
                2 | 6 => 1,
                3 | 7 => 2,
                _ => 3,
            })];
            let at = ((y * seen.width + x) * 3) as usize;
            assert_eq!(seen.bytes()[at..at + 3], stored.bytes()[..3], "{} {orientation}", header.format);
        }
    }
    assert_eq!(read_header(&plain).unwrap().orientation, Orientation::IDENTITY);
}

#[test]
fn memory_is_reused_and_a_smaller_picture_leaves_no_trace() {
    let large = encode_png(&gradient(90, 90, 3), 90, 90, 3).unwrap();
    let small = encode_png(&gradient(5, 4, 3), 5, 4, 3).unwrap();
    let mut picture = Picture::default();
    decode_into(&large, &options(Mode::Rgb), &mut picture).unwrap();
    let place = picture.pixels.as_ptr();
    decode_into(&small, &options(Mode::Rgb), &mut picture).unwrap();
    assert_eq!(picture.pixels.as_ptr(), place);
    assert_eq!(picture.bytes(), gradient(5, 4, 3));
    decode_into(b"nothing", &options(Mode::Rgb), &mut picture).unwrap_err();
    assert!(picture.is_empty());
}

#[test]
fn sizes_that_contradict_the_pixels_are_not_encoded() {
    for (width, height, channels) in [(3, 2, 3), (0, 2, 3), (2, 2, 5)] {
        let error = encode_png(&[0; 12], width, height, channels).unwrap_err();
        assert!(matches!(error, CodecError::Shape { .. }), "{error}");
        let error = encode_jpeg(&[0; 12], width, height, channels, 90, Subsampling::S444).unwrap_err();
        assert!(matches!(error, CodecError::Shape { .. }), "{error}");
    }
}
