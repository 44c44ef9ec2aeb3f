//! Which instructions may be used.
//!
//! Chosen once and passed in, so that a test can turn them off. A value other than `none` is proof that this machine has
//! the instructions, see C5.

/// The instructions the kernels may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simd {
    avx2: bool,
}

impl Simd {
    /// What this machine has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c");
        #[cfg(not(target_arch = "x86_64"))]
        let avx2 = false;
        Self { avx2 }
    }

    /// Nothing but the scalar definitions.
    pub const fn none() -> Self {
        Self { avx2: false }
    }

    /// Whether AVX2 and F16C are there.
    pub(crate) fn has_avx2(self) -> bool {
        self.avx2
    }
}
