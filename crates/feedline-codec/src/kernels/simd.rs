//! Which SIMD instructions may be used.
//!
//! Detected once and passed in, so that a test can turn them off. A value other than `none` proves that this machine has the
//! instructions, see C5.

/// The instructions the kernels may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simd {
    avx2: bool,
    neon: bool,
}

impl Simd {
    /// The instructions of this machine.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        // F16C converts to half precision, FMA rounds a product and a sum once. Processors with AVX2 have both, but each has a
        // flag of its own.
        let avx2 =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") && is_x86_feature_detected!("fma");
        #[cfg(not(target_arch = "x86_64"))]
        let avx2 = false;
        #[cfg(target_arch = "aarch64")]
        let neon = std::arch::is_aarch64_feature_detected!("neon");
        #[cfg(not(target_arch = "aarch64"))]
        let neon = false;
        Self { avx2, neon }
    }

    /// No SIMD: only the scalar definitions.
    pub const fn none() -> Self {
        Self { avx2: false, neon: false }
    }

    /// Whether AVX2, F16C and FMA are there.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn has_avx2(self) -> bool {
        self.avx2
    }

    /// Whether NEON is there.
    #[cfg(target_arch = "aarch64")]
    pub(crate) fn has_neon(self) -> bool {
        self.neon
    }
}
