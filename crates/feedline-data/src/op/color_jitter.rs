//! Changes brightness, contrast, saturation and hue at random, in random order: torchvision's `ColorJitter`.
//!
//! The arithmetic is that of torchvision on uint8 tensors: each step is computed in float32 and truncated to a byte.

use feedline_order::Draw;
use serde::{Deserialize, Serialize};

use super::pixels::pack;
use super::{Facts, On, Op, OpError};
use crate::batch::{FieldError, FieldTypes, Kind, Pixels, Sample, Value};
use crate::memory::{Cancel, Workspace};
use crate::op::CheckError;

/// Changes colours at random.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ColorJitter {
    #[serde(default)]
    brightness: Strength,
    #[serde(default)]
    contrast: Strength,
    #[serde(default)]
    saturation: Strength,
    #[serde(default)]
    hue: Strength,
    #[serde(default)]
    on: On,
}

/// A strength `v`, which means `1 - v` to `1 + v` (for hue `-v` to `v`), or both ends of the range.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(untagged, expecting = "a strength is a number, or the two ends of a range")]
enum Strength {
    Strength(f64),
    Ends([f64; 2]),
}

impl std::fmt::Display for Strength {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Strength(strength) => write!(f, "{strength}"),
            Self::Ends([low, high]) => write!(f, "({low}, {high})"),
        }
    }
}

impl Default for Strength {
    fn default() -> Self {
        Self::Strength(0.0)
    }
}

impl Strength {
    fn factors(self) -> [f64; 2] {
        match self {
            Self::Strength(strength) => [(1.0 - strength).max(0.0), 1.0 + strength],
            Self::Ends(ends) => ends,
        }
    }

    fn turns(self) -> [f64; 2] {
        match self {
            Self::Strength(strength) => [-strength, strength],
            Self::Ends(ends) => ends,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum JitterStep {
    Brightness(f64),
    Contrast(f64),
    Saturation(f64),
    Hue(f64),
}

/// Number of pixels between two checks for cancellation.
const CANCEL_STRIDE: usize = 1 << 20;

impl ColorJitter {
    /// The steps in the drawn order. Steps that change nothing are left out.
    fn steps(&self, draw: &Draw) -> Vec<JitterStep> {
        let factor = |number, span: Strength| {
            let [low, high] = span.factors();
            draw.between(number, low, high)
        };
        let [low, high] = self.hue.turns();
        let mut steps = [
            JitterStep::Brightness(factor(4, self.brightness)),
            JitterStep::Contrast(factor(5, self.contrast)),
            JitterStep::Saturation(factor(6, self.saturation)),
            JitterStep::Hue(draw.between(7, low, high)),
        ];
        // Fisher-Yates shuffle with draws 1 to 3. The strengths use draws 4 to 7.
        for last in (1..steps.len()).rev() {
            steps.swap(last, draw.below(last as u32, last as u64 + 1) as usize);
        }
        steps.into_iter().filter(|step| !step.is_neutral()).collect()
    }
}

impl JitterStep {
    #[expect(clippy::float_cmp, reason = "only the exact value changes nothing")]
    fn is_neutral(self) -> bool {
        match self {
            Self::Brightness(factor) | Self::Contrast(factor) | Self::Saturation(factor) => factor == 1.0,
            Self::Hue(turn) => turn == 0.0,
        }
    }

    fn apply(self, rgb: &mut [u8], cancel: &Cancel) -> Result<(), OpError> {
        // Contrast blends with the mean of the picture as it is before this step.
        let mean = if let Self::Contrast(_) = self { mean_luma(rgb) } else { 0.0 };
        for part in rgb.chunks_mut(CANCEL_STRIDE * 3) {
            cancel.check()?;
            for pixel in part.as_chunks_mut::<3>().0 {
                *pixel = match self {
                    Self::Brightness(factor) => pixel.map(|value| blend(value, 0.0, factor)),
                    Self::Contrast(factor) => pixel.map(|value| blend(value, mean, factor)),
                    Self::Saturation(factor) => {
                        let grey = luma(*pixel);
                        pixel.map(|value| blend(value, grey, factor))
                    }
                    Self::Hue(turn) => turn_hue(*pixel, turn as f32),
                };
            }
        }
        Ok(())
    }
}

fn blend(value: u8, other: f32, factor: f64) -> u8 {
    fused(other, (1.0 - factor) as f32, factor as f32 * f32::from(value)).clamp(0.0, 255.0) as u8
}

/// `a * b + c` without rounding the product, as torch's kernels compute it: the product of two float32 is exact in float64.
fn fused(a: f32, b: f32, c: f32) -> f32 {
    (f64::from(a) * f64::from(b) + f64::from(c)) as f32
}

/// Luminance, truncated to an integer.
fn luma(pixel: [u8; 3]) -> f32 {
    let [red, green, blue] = pixel.map(f32::from);
    fused(blue, 0.114, fused(green, 0.587, 0.2989 * red)).floor()
}

/// The mean luminance of a picture. Summed in integers, so that the order of summation does not matter.
fn mean_luma(rgb: &[u8]) -> f32 {
    let pixels = rgb.as_chunks::<3>().0;
    let sum: u64 = pixels.iter().map(|pixel| luma(*pixel) as u64).sum();
    (sum as f64 / pixels.len().max(1) as f64) as f32
}

#[expect(clippy::float_cmp, reason = "the greatest of three is one of them")]
fn turn_hue(pixel: [u8; 3], turn: f32) -> [u8; 3] {
    let [r, g, b] = pixel.map(|value| f32::from(value) / 255.0);
    // RGB to HSV, add the turn to the hue, and back. A grey pixel has no hue.
    let (high, low) = (r.max(g).max(b), r.min(g).min(b));
    let range = high - low;
    if range == 0.0 {
        return pixel;
    }
    let saturation = range / high;
    let (to_red, to_green, to_blue) = ((high - r) / range, (high - g) / range, (high - b) / range);
    let sixths = if high == r {
        to_blue - to_green
    } else if high == g {
        2.0 + to_red - to_blue
    } else {
        4.0 + to_green - to_red
    };
    // The hue is a fraction of the circle. Adding 1 keeps it positive, then its integer part is dropped.
    let mut hue = sixths / 6.0 + 1.0 + turn;
    hue -= hue.floor();
    let sector = hue * 6.0;
    let (index, fraction) = (sector.floor(), sector - sector.floor());
    let p = (high * (1.0 - saturation)).clamp(0.0, 1.0);
    let q = (high * (1.0 - saturation * fraction)).clamp(0.0, 1.0);
    let t = (high * (1.0 - saturation * (1.0 - fraction))).clamp(0.0, 1.0);
    let rgb = match index as i32 % 6 {
        0 => [high, t, p],
        1 => [q, high, p],
        2 => [p, high, t],
        3 => [p, q, high],
        4 => [t, p, high],
        _ => [high, p, q],
    };
    // torchvision's conversion from float to uint8: `value * (255 + 1 - 1e-3)`, truncated.
    rgb.map(|value| (value * (256.0 - 1e-3)) as u8)
}

impl Op for ColorJitter {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        for (name, span) in
            [("brightness", self.brightness), ("contrast", self.contrast), ("saturation", self.saturation)]
        {
            let is_bad_strength = matches!(span, Strength::Strength(strength) if strength.is_nan() || strength < 0.0);
            let [low, high] = span.factors();
            if is_bad_strength || !(low >= 0.0 && low <= high && high.is_finite()) {
                let problem =
                    format!("{name} is {span}; it has to be a number from 0 on, or (low, high) with 0 <= low <= high");
                return Err(CheckError::Parameter(problem));
            }
        }
        let [low, high] = self.hue.turns();
        // Hue is a fraction of the circle, so half a turn in both directions reaches every hue.
        if !(low >= -0.5 && low <= high && high <= 0.5) {
            let problem = format!("hue is {}; it has to lie within -0.5 and 0.5", self.hue);
            return Err(CheckError::Parameter(problem));
        }
        self.on.change(types, "RGB pixels", |kind| match kind {
            Kind::Pixels(pixels) if !pixels.is_mask && pixels.channels == 3 => Some(kind.clone()),
            _ => None,
        })
    }

    fn is_random(&self) -> bool {
        true
    }

    fn resolve(&self, draw: &Draw, _: Facts) -> Vec<(&'static str, f64)> {
        self.steps(draw)
            .into_iter()
            .map(|step| match step {
                JitterStep::Brightness(factor) => ("brightness", factor),
                JitterStep::Contrast(factor) => ("contrast", factor),
                JitterStep::Saturation(factor) => ("saturation", factor),
                JitterStep::Hue(turn) => ("hue", turn),
            })
            .collect()
    }

    fn apply(&self, sample: &mut Sample<'_>, draw: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        let steps = self.steps(draw);
        for name in self.on.names() {
            let source = sample.take_pixels(name)?;
            // A user's function may have returned grey pixels, which `check` could not see.
            if source.channels != 3 {
                return Err(FieldError::Unfit {
                    name: name.to_owned(),
                    has: "grey pixels".to_owned(),
                    needs: "RGB pixels",
                }
                .into());
            }
            let mut pixels: Pixels<'_> = pack(sample, name, source, workspace)?;
            for step in &steps {
                step.apply(&mut pixels.memory, workspace.cancel())?;
            }
            sample.put(name, Value::Pixels(pixels));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neutral_strengths_change_nothing_and_a_full_turn_of_hue_returns() {
        for pixel in [[0, 0, 0], [255, 255, 255], [10, 200, 90], [255, 0, 128], [1, 2, 3]] {
            assert_eq!(pixel.map(|value| blend(value, 99.0, 1.0)), pixel);
            for (value, turned) in pixel.into_iter().zip(turn_hue(pixel, 1.0)) {
                assert!(value.abs_diff(turned) <= 1, "{pixel:?} became {:?}", turn_hue(pixel, 1.0));
            }
        }
    }
}
