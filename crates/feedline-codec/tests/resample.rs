//! Resizing: the bytes of the crate `fast_image_resize`, and parts of a result with the bytes of the whole.

#![allow(clippy::unwrap_used, reason = "helpers of tests are outside of #[test] functions")]

mod support;

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::{InnerPixel, U8, U8x3};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};
use feedline_codec::{Filter, Rect, Resampler, Resizing, View};
use support::Numbers;

const FILTERS: [Filter; 3] = [Filter::Nearest, Filter::Bilinear, Filter::Bicubic];

/// Sides of pictures and results: small ones, usual ones, strong shrinking and growing.
fn side(numbers: &mut Numbers) -> u32 {
    let most = [3, 40, 300, 1500][numbers.below(4) as usize];
    1 + numbers.below(most) as u32
}

fn resized(resampler: &mut Resampler, source: View<'_>, resizing: Resizing) -> Vec<u8> {
    let (width, height) = resizing.to;
    let mut target = vec![1; (width * height) as usize * usize::from(source.channels)];
    resampler.resize(source, &mut target, width, height, resizing.filter).unwrap();
    target
}

fn peer<P: PixelTrait + InnerPixel>(source: &[u8], from: (u32, u32), to: (u32, u32), kind: FilterType) -> Vec<u8> {
    let mut target = vec![0; (to.0 * to.1) as usize * size_of::<P>()];
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(kind)).use_alpha(false);
    let source = TypedImageRef::<P>::from_buffer(from.0, from.1, source).unwrap();
    let mut image = TypedImage::<P>::from_buffer(to.0, to.1, &mut target).unwrap();
    Resizer::new().resize_typed(&source, &mut image, &options).unwrap();
    target
}

fn peer_of(source: View<'_>, resizing: Resizing) -> Vec<u8> {
    let Resizing { from, to, filter } = resizing;
    let one = |source: &[u8], from, to, kind| match resizing_channels(source.len(), from) {
        1 => peer::<U8>(source, from, to, kind),
        _ => peer::<U8x3>(source, from, to, kind),
    };
    match filter {
        Filter::Bicubic if from.0 != to.0 && from.1 != to.1 => {
            let narrow = one(source.pixels, from, (to.0, from.1), FilterType::CatmullRom);
            one(&narrow, (to.0, from.1), to, FilterType::CatmullRom)
        }
        Filter::Bicubic => one(source.pixels, from, to, FilterType::CatmullRom),
        _ => one(source.pixels, from, to, FilterType::Bilinear),
    }
}

fn resizing_channels(bytes: usize, (width, height): (u32, u32)) -> usize {
    bytes / (width * height) as usize
}

#[test]
fn bytes_are_those_of_fast_image_resize() {
    let mut numbers = Numbers(0xf1f);
    let (mut with, mut without) = (Resampler::new(), Resampler::without_simd());
    for round in 0..400 {
        let (from, to) = ((side(&mut numbers), side(&mut numbers)), (side(&mut numbers), side(&mut numbers)));
        let channels = [1_u8, 3][round % 2];
        let pixels = if round % 3 == 0 {
            // Extremes, where the cubic filter overshoots.
            numbers.bytes((from.0 * from.1) as usize * usize::from(channels)).iter().map(|b| (b & 1) * 255).collect()
        } else {
            numbers.bytes((from.0 * from.1) as usize * usize::from(channels))
        };
        let source = View::packed(&pixels, from.0, from.1, channels);
        for filter in [Filter::Bilinear, Filter::Bicubic] {
            let resizing = Resizing { from, to, filter };
            let expected = peer_of(source, resizing);
            assert!(resized(&mut with, source, resizing) == expected, "{resizing:?}, {channels} channels");
            assert!(resized(&mut without, source, resizing) == expected, "scalar {resizing:?}, {channels} channels");
        }
    }
}

#[test]
fn law_8_a_part_of_a_resized_picture_has_the_bytes_of_the_whole() {
    let mut numbers = Numbers(0x1a48);
    for round in 0..600 {
        let (mut from, to) = ((side(&mut numbers), side(&mut numbers)), (side(&mut numbers), side(&mut numbers)));
        match round % 7 {
            0 => from.0 = to.0,
            1 => from.1 = to.1,
            2 if round % 3 == 0 => from = to,
            _ => {}
        }
        let channels = [1_u8, 3][round % 2];
        let pixel = usize::from(channels);
        let pixels = numbers.bytes((from.0 * from.1) as usize * pixel);
        let source = View::packed(&pixels, from.0, from.1, channels);
        let part = support::crop(&mut numbers, to.0, to.1);
        for filter in FILTERS {
            let resizing = Resizing { from, to, filter };
            let mut resampler = if round % 5 == 0 { Resampler::without_simd() } else { Resampler::new() };
            let whole = resized(&mut resampler, source, resizing);
            // Only what it says to need, and more than that.
            let least = resizing.source_rect(part);
            for held in [least, Rect { left: 0, width: least.right(), ..least }] {
                let view = source.crop(held.left, held.top, held.width, held.height);
                let mut found = vec![7; (part.width * part.height) as usize * pixel];
                resampler.resize_part(view, held, resizing, part, &mut found).unwrap();
                let expected = View::packed(&whole, to.0, to.1, channels);
                let expected = expected.crop(part.left, part.top, part.width, part.height);
                assert!(expected.rows().flatten().eq(&found), "{resizing:?}, {part:?} from {held:?}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "is in memory, but")]
fn a_part_whose_pixels_are_missing_is_refused() {
    let resizing = Resizing { from: (20, 20), to: (10, 10), filter: Filter::Bilinear };
    let (part, held) = (Rect::whole(5, 5), Rect::whole(10, 10));
    let source = View::packed(&[0; 100], 10, 10, 1);
    Resampler::new().resize_part(source, held, resizing, part, &mut [0; 25]).unwrap();
}
