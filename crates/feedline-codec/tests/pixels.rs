//! Kernels and resampling: SIMD and scalar code agree with each other and with the definition.

mod support;

use feedline_codec::{
    Affine, ColourStep, Filter, Resampler, Simd, View, change_colours, interleaved_bf16, interleaved_f16,
    interleaved_f32, mean_luma, planes_bf16, planes_f16, planes_f32, planes_u8,
};
use half::{bf16, f16};
use support::{Numbers, assert_near, gradient};

type Kernel = fn(View<'_>, Option<&Affine>, Simd, &mut [u8]);

const KERNELS: [(&str, Kernel, usize, bool); 6] = [
    ("planes_f32", planes_f32, 4, true),
    ("planes_f16", planes_f16, 2, true),
    ("planes_bf16", planes_bf16, 2, true),
    ("interleaved_f32", interleaved_f32, 4, false),
    ("interleaved_f16", interleaved_f16, 2, false),
    ("interleaved_bf16", interleaved_bf16, 2, false),
];

const SIZES: [(u32, u32); 10] =
    [(1, 1), (2, 3), (5, 1), (8, 2), (15, 4), (16, 1), (17, 3), (33, 5), (224, 2), (100, 7)];

const AFFINES: [Option<Affine>; 4] = [
    None,
    Some(Affine { scale: [4.366_813, 4.464_286, 4.444_444], bias: [-2.117_904, -2.035_714, -1.804_444] }),
    Some(Affine { scale: [1e-6, 1e6, -3.5], bias: [1e-7, 65504.0, 0.0] }),
    Some(Affine { scale: [f32::INFINITY, 1.0, 0.0], bias: [0.0, f32::NEG_INFINITY, -0.0] }),
];

#[test]
fn simd_and_scalar_write_the_same_bytes() {
    let mut numbers = Numbers(42);
    for (width, height) in SIZES {
        for channels in [1_u8, 3] {
            for gap in [0, 1, 31] {
                let stride = width as usize * usize::from(channels) + gap;
                let pixels = numbers.bytes(stride * height as usize);
                let view = View { pixels: &pixels, width, height, channels, stride };
                let count = width as usize * height as usize * usize::from(channels);
                for affine in AFFINES {
                    for (name, kernel, number_bytes, _) in KERNELS {
                        // At an odd offset, because a sample may lie anywhere in a batch.
                        let mut with = vec![1; count * number_bytes + 1];
                        let mut without = vec![2; count * number_bytes + 1];
                        kernel(view, affine.as_ref(), Simd::detect(), &mut with[1..]);
                        kernel(view, affine.as_ref(), Simd::none(), &mut without[1..]);
                        assert!(with[1..] == without[1..], "{name} {width} x {height} x {channels}, {affine:?}");
                    }
                }
                let (mut with, mut without) = (vec![1; count], vec![2; count]);
                planes_u8(view, Simd::detect(), &mut with);
                planes_u8(view, Simd::none(), &mut without);
                assert_eq!(with, without);
            }
        }
    }
}

#[test]
fn numbers_are_those_of_the_definition() {
    let (width, height) = (19, 3);
    let pixels: Vec<u8> = (0..width * height * 3).map(|i| (i * 37 % 256) as u8).collect();
    let view = View::packed(&pixels, width, height, 3);
    let plane = (width * height) as usize;
    for affine in &AFFINES[..3] {
        for (name, kernel, number_bytes, is_planes) in KERNELS {
            let mut target = vec![0; pixels.len() * number_bytes];
            kernel(view, affine.as_ref(), Simd::detect(), &mut target);
            for (i, &byte) in pixels.iter().enumerate() {
                let (pixel, channel) = (i / 3, i % 3);
                let mut value = f32::from(byte) * (1.0 / 255.0);
                if let Some(affine) = affine {
                    value *= affine.scale[channel];
                    value += affine.bias[channel];
                }
                let expected = match () {
                    () if number_bytes == 4 => value.to_ne_bytes().to_vec(),
                    () if name.ends_with("bf16") => bf16::from_f32(value).to_ne_bytes().to_vec(),
                    () => f16::from_f32(value).to_ne_bytes().to_vec(),
                };
                let place = if is_planes { channel * plane + pixel } else { i };
                assert_eq!(target[place * number_bytes..][..number_bytes], expected, "{name} at {i}");
            }
        }
    }
}

#[test]
fn large_planes_have_the_same_bytes_at_every_alignment() {
    // Planes of this size are written by streaming stores where they are aligned. 163 pixels are no whole number of steps.
    for (width, height) in [(160, 128), (163, 125)] {
        let pixels = Numbers(3).bytes(width * height * 3);
        let view = View::packed(&pixels, width as u32, height as u32, 3);
        let mut expected = vec![0; pixels.len() * 4];
        planes_f32(view, AFFINES[1].as_ref(), Simd::none(), &mut expected);
        for shift in [0, 4, 16, 32] {
            let mut memory = vec![0; expected.len() + 64];
            let start = memory.as_ptr().align_offset(32) + shift;
            planes_f32(view, AFFINES[1].as_ref(), Simd::detect(), &mut memory[start..start + expected.len()]);
            assert!(memory[start..start + expected.len()] == expected, "{width} x {height}, {shift} bytes beyond");
        }
    }
}

#[test]
fn law_1_steps_of_colour_give_the_same_bytes_with_and_without_simd() {
    let mut numbers = Numbers(5);
    for pixels in [0, 1, 15, 16, 17, 1023, 1024, 1025, 5000] {
        let rgb = numbers.bytes(pixels * 3);
        let [a, b, c, turn] = std::array::from_fn(|_| numbers.below(2000) as f64 / 1000.0);
        let steps = [
            ColourStep::Blend { level: 0.0, factor: a },
            ColourStep::Hue { turn: (turn - 1.0) as f32 / 2.0 },
            ColourStep::Saturation { factor: b },
            ColourStep::Blend { level: mean_luma(&rgb, Simd::detect()), factor: c },
        ];
        assert_eq!(mean_luma(&rgb, Simd::detect()).to_bits(), mean_luma(&rgb, Simd::none()).to_bits());
        for count in 0..=steps.len() {
            check_colours(&rgb, &steps[..count]);
        }
    }
}

#[test]
fn law_1_the_hue_of_every_colour_turns_to_the_same_bytes_with_and_without_simd() {
    let mut rgb: Vec<u8> = (0..1 << 16).flat_map(|colour| [0, (colour >> 8) as u8, colour as u8]).collect();
    for red in 0..=255 {
        rgb.iter_mut().step_by(3).for_each(|value| *value = red);
        check_colours(&rgb, &[ColourStep::Hue { turn: [0.1, -0.4, 0.5][usize::from(red) % 3] }]);
    }
}

#[track_caller]
fn check_colours(rgb: &[u8], steps: &[ColourStep]) {
    let (mut left, mut right) = (rgb.to_vec(), rgb.to_vec());
    change_colours(&mut left, steps, Simd::detect());
    change_colours(&mut right, steps, Simd::none());
    assert!(left == right, "{} pixels, {steps:?}", rgb.len() / 3);
}

#[test]
fn the_resampler_writes_the_same_bytes_with_and_without_simd() {
    let mut numbers = Numbers(7);
    let (mut with, mut without) = (Resampler::new(), Resampler::without_simd());
    for round in 0..300 {
        let mut side = || 1 + numbers.below(if round % 10 == 0 { 300 } else { 40 }) as u32;
        let (from, to) = ((side(), side()), (side(), side()));
        let channels = [1_u8, 3][round % 2];
        let stride = from.0 as usize * usize::from(channels) + round % 5;
        let pixels = numbers.bytes(stride * from.1 as usize);
        let view = View { pixels: &pixels, width: from.0, height: from.1, channels, stride };
        for filter in [Filter::Nearest, Filter::Bilinear, Filter::Bicubic] {
            let len = to.0 as usize * to.1 as usize * usize::from(channels);
            let (mut left, mut right) = (vec![1; len], vec![2; len]);
            with.resize(view, &mut left, to.0, to.1, filter).unwrap();
            without.resize(view, &mut right, to.0, to.1, filter).unwrap();
            assert!(left == right, "{from:?} to {to:?}, {channels} channels, {filter:?}");
        }
    }
}

#[test]
fn a_crop_is_resized_as_if_it_were_a_picture_of_its_own() {
    let pixels = gradient(60, 50, 3);
    let crop = View::packed(&pixels, 60, 50, 3).crop(11, 7, 30, 29);
    let copy: Vec<u8> = crop.rows().flatten().copied().collect();
    let mut resampler = Resampler::new();
    for filter in [Filter::Nearest, Filter::Bilinear, Filter::Bicubic] {
        for (width, height) in [(16, 16), (30, 29), (64, 40)] {
            let (mut left, mut right) = (vec![0; width * height * 3], vec![1; width * height * 3]);
            resampler.resize(crop, &mut left, width as u32, height as u32, filter).unwrap();
            resampler.resize(View::packed(&copy, 30, 29, 3), &mut right, width as u32, height as u32, filter).unwrap();
            assert_eq!(left, right);
        }
    }
}

#[test]
fn the_same_size_is_a_copy_and_a_flat_picture_stays_flat() {
    let pixels = gradient(20, 10, 3);
    let mut target = vec![0; pixels.len()];
    let mut resampler = Resampler::new();
    for filter in [Filter::Nearest, Filter::Bilinear, Filter::Bicubic] {
        resampler.resize(View::packed(&pixels, 20, 10, 3), &mut target, 20, 10, filter).unwrap();
        assert_eq!(target, pixels);
        let mut small = [0; 7 * 5 * 3];
        resampler.resize(View::packed(&[99; 600], 20, 10, 3), &mut small, 7, 5, filter).unwrap();
        assert_near(&small, &[99; 7 * 5 * 3], 0);
    }
}

#[test]
fn nearest_invents_no_value() {
    let pixels: Vec<u8> = (0..31 * 17).map(|i| (i % 7) as u8 * 30).collect();
    let mut target = vec![1; 50 * 11];
    Resampler::new().resize(View::packed(&pixels, 31, 17, 1), &mut target, 50, 11, Filter::Nearest).unwrap();
    assert!(target.iter().all(|value| value % 30 == 0));
}

#[test]
#[should_panic(expected = "need 192 bytes, the target has 191")]
fn a_target_of_the_wrong_length_is_refused() {
    planes_u8(View::packed(&[0; 192], 8, 8, 3), Simd::none(), &mut [0; 191]);
}
