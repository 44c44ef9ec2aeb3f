//! Fast loops over pixels: conversion to numbers, colours and flips.
//!
//! Each has a scalar definition. Where it pays there is also an AVX2 or NEON version with the same result.

mod colour;
mod deep;
mod flip;
#[cfg(target_arch = "aarch64")]
mod neon;
mod normalize;
mod simd;
mod split;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use colour::{ColourStep, change_colours, mean_luma};
pub use deep::{DeepNumbers, numbers_of_16_bits};
pub use flip::{flip_horizontal, flip_vertical};
pub use normalize::{
    Affine, interleaved_bf16, interleaved_f16, interleaved_f32, planes_bf16, planes_f16, planes_f32, planes_u8,
};
pub use simd::Simd;
