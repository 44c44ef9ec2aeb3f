//! Loops over pixels that must be fast: numbers from pixels, and flips.
//!
//! Each has a scalar definition, which is always there, and where it pays an AVX2 or NEON form that gives the same bytes.

mod flip;
#[cfg(target_arch = "aarch64")]
mod neon;
mod normalize;
mod simd;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use flip::{flip_horizontal, flip_vertical};
pub use normalize::{
    Affine, interleaved_bf16, interleaved_f16, interleaved_f32, planes_bf16, planes_f16, planes_f32, planes_u8,
};
pub use simd::Simd;
