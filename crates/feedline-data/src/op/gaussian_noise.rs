//! Adds normal noise of random strength, with a probability.
//!
//! The noise of an element is a function of the draw and the element's number, by our own arithmetic (law 1). Philox gives 32 bits,
//! and the inverse of the normal distribution turns 23 of them into a number (M. Giles, "Approximating the erfinv function", single
//! precision). It uses only sums, products and square roots, each rounded by IEEE 754. So every machine computes the same bytes,
//! however the loops are vectorised.

use feedline_order::Draw;
use feedline_order::random::philox;
use serde::{Deserialize, Serialize};
use serde_inline_default::serde_inline_default;

use super::volumes::{change_floats, check_floats, check_positive};
use super::{On, Op, OpError};
use crate::batch::{FieldTypes, Sample};
use crate::memory::Workspace;
use crate::op::CheckError;

/// Number of elements to compute at once.
const CHUNK: usize = 1024;

/// Adds normal noise with a standard deviation between 0 and `std`.
#[serde_inline_default]
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GaussianNoise {
    #[serde_inline_default(0.1)]
    std: f64,
    #[serde_inline_default(0.1)]
    p: f64,
    #[serde(default)]
    on: On,
}

impl Op for GaussianNoise {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        CheckError::probability(self.p)?;
        check_positive("std", self.std)?;
        check_floats(&self.on, types)
    }

    fn is_random(&self) -> bool {
        self.p > 0.0
    }

    fn fires(&self, draw: &Draw) -> bool {
        draw.happens(0, self.p)
    }

    fn apply(&self, sample: &mut Sample<'_>, draw: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        if !self.fires(draw) {
            return Ok(());
        }
        // Draw 0 decides whether noise is added, draw 1 its strength, draw 2 the key of the noise.
        let deviation = draw.between(1, 0.0, self.std) as f32;
        let bits = draw.bits(2);
        let key = [bits as u32, (bits >> 32) as u32];
        // The number of the field is a part of the counter, so each field has noise of its own.
        for (number, name) in self.on.names().enumerate() {
            change_floats(sample, name, workspace, |first, elements| {
                add_noise(elements, first, deviation, (key, number as u32));
            })?;
        }
        Ok(())
    }
}

/// Adds noise to elements. The first has the number `first`, which must be a multiple of 4.
fn add_noise(elements: &mut [[u8; 4]], first: usize, deviation: f32, (key, field): ([u32; 2], u32)) {
    let mut words = [0; CHUNK];
    let mut noise = [0.0; CHUNK];
    for (chunk, elements) in elements.chunks_mut(CHUNK).enumerate() {
        for (block, words) in words.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            // Each call of Philox gives four words, so the counter is the element's number divided by 4.
            let number = (first / 4 + chunk * (CHUNK / 4) + block) as u64;
            *words = philox([number as u32, (number >> 32) as u32, field, 0], key);
        }
        normals(&words, &mut noise);
        for (element, noise) in elements.iter_mut().zip(&noise) {
            *element = (f32::from_ne_bytes(*element) + deviation * noise).to_ne_bytes();
        }
    }
}

/// Normal numbers from random bits. The vectorised loop treats all as central values. The few in the tails are computed again.
fn normals(words: &[u32; CHUNK], out: &mut [f32; CHUNK]) {
    let mut tails = [0.0; CHUNK];
    for ((word, out), tail) in words.iter().zip(out.iter_mut()).zip(&mut tails) {
        let share = share(*word);
        // Giles: w = -ln(1 - x^2) with x = 2 share - 1, and 1 - x^2 = 4 share (1 - share), which has no cancellation near x = 1.
        *tail = -ln(4.0 * share * (1.0 - share));
        *out = std::f32::consts::SQRT_2 * near(*tail) * (2.0 * share - 1.0);
    }
    for ((word, out), tail) in words.iter().zip(out).zip(tails) {
        // Giles uses a second polynomial from w = 5 on. That is about one number in 300.
        if tail >= 5.0 {
            *out = std::f32::consts::SQRT_2 * far(tail) * (2.0 * share(*word) - 1.0);
        }
    }
}

/// The cumulative probability of a number, at the centre of its step: neither 0 nor 1.
#[inline]
fn share(word: u32) -> f32 {
    // The upper 23 bits, plus a half: exact in float32.
    ((word >> 9).cast_signed() as f32 + 0.5) * (1.0 / (1 << 23) as f32)
}

/// The factor for a central value. `tail` measures the distance from the ends.
#[inline]
fn near(tail: f32) -> f32 {
    let coefficients = [
        2.810_226_4e-8,
        3.432_739_4e-7,
        -3.523_387_7e-6,
        -4.391_506_5e-6,
        2.185_808_7e-4,
        -1.253_725e-3,
        -4.177_681_6e-3,
        0.246_640_73,
        1.501_409_4,
    ];
    polynomial(tail - 2.5, coefficients)
}

/// The factor for a value in the tails.
fn far(tail: f32) -> f32 {
    let coefficients = [
        -2.002_142_6e-4,
        1.009_505_6e-4,
        1.349_343_2e-3,
        -3.673_428_4e-3,
        5.739_507_7e-3,
        -7.622_461_3e-3,
        9.438_870_5e-3,
        1.001_674,
        2.832_976_8,
    ];
    polynomial(tail.sqrt() - 3.0, coefficients)
}

/// The natural logarithm of a normal number above 0, to single precision (Cephes' `logf`).
#[inline]
fn ln(value: f32) -> f32 {
    /// The bits of the square root of a half: mantissas are taken from there to twice that.
    const LOWEST: u32 = 0x3f35_04f3;
    // Splits value = 2^exponent * (1 + part), with 1 + part between sqrt(1/2) and sqrt(2).
    let bits = value.to_bits().wrapping_sub(LOWEST).cast_signed();
    let exponent = (bits >> 23) as f32;
    let part = f32::from_bits((bits & 0x007f_ffff).cast_unsigned() + LOWEST) - 1.0;
    let square = part * part;
    let rest = polynomial(
        part,
        [
            7.037_683_6e-2,
            -0.115_146_1,
            0.116_769_99,
            -0.124_201_41,
            0.142_493_23,
            -0.166_680_58,
            0.200_007_15,
            -0.249_999_94,
            0.333_333_3,
        ],
    );
    // ln(1 + p) = p - p^2/2 + p^3 * polynomial(p), and ln(2^e) = e ln 2.
    part + (rest * part * square - 0.5 * square) + exponent * std::f32::consts::LN_2
}

/// A polynomial. The coefficient of the highest power comes first.
#[inline]
fn polynomial(at: f32, coefficients: [f32; 9]) -> f32 {
    let [a, b, c, d, e, f, g, h, i] = coefficients;
    // Horner's rule, without fused multiply-add, so that every machine rounds alike.
    (((((((a * at + b) * at + c) * at + d) * at + e) * at + f) * at + g) * at + h) * at + i
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_that_of_libm() {
        for number in 1..20_000u32 {
            let value = number as f32 / 16_000.0;
            let expected = libm::log(f64::from(value));
            assert!((f64::from(ln(value)) - expected).abs() < 2e-7 * expected.abs().max(1.0), "{value}");
        }
        assert!((ln(2f32.powi(-22)) + 22.0 * std::f32::consts::LN_2).abs() < 2e-6);
    }

    fn normal(word: u32) -> f32 {
        let mut out = [0.0; CHUNK];
        normals(&[word; CHUNK], &mut out);
        out[0]
    }

    #[test]
    fn normal_numbers_have_the_shares_of_the_normal_distribution() {
        for word in (0..=u32::MAX).step_by(65_537) {
            let share = (f64::from(word >> 9) + 0.5) / f64::from(1 << 23);
            let back = 0.5 * libm::erfc(-f64::from(normal(word)) / std::f64::consts::SQRT_2);
            assert!((back - share).abs() < 1e-6, "{share} came back as {back}");
        }
        assert!(normal(0) < -5.0 && normal(u32::MAX) > 5.0);
    }

    #[test]
    fn the_noise_of_an_element_does_not_depend_on_the_others() {
        let mut all = vec![[0; 4]; 5000];
        let (front, back) = all.split_at_mut(1000);
        add_noise(front, 0, 1.0, ([3, 4], 0));
        add_noise(back, 1000, 1.0, ([3, 4], 0));
        for place in [0, 1, 1023, 1024, 4999] {
            let word = philox([place as u32 / 4, 0, 0, 0], [3, 4])[place % 4];
            assert_eq!(all[place], (0.0 + normal(word)).to_ne_bytes());
        }
    }
}
