//! Changes brightness, contrast, saturation and hue at random, in random order: torchvision's `ColorJitter`.
//!
//! Here are the draws and the order of the steps. Their arithmetic is that of [`change_colours`].

use feedline_codec::{ColourStep, Simd, change_colours, mean_luma};
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

    /// The step for a picture with this mean luminance.
    fn on_picture(self, mean: f32) -> ColourStep {
        match self {
            Self::Brightness(factor) => ColourStep::Blend { level: 0.0, factor },
            Self::Contrast(factor) => ColourStep::Blend { level: mean, factor },
            Self::Saturation(factor) => ColourStep::Saturation { factor },
            Self::Hue(turn) => ColourStep::Hue { turn: turn as f32 },
        }
    }
}

/// Applies steps to packed RGB.
fn jitter(rgb: &mut [u8], steps: &[JitterStep], simd: Simd, cancel: &Cancel) -> Result<(), OpError> {
    let contrast = steps.iter().position(|step| matches!(step, JitterStep::Contrast(_))).unwrap_or(steps.len());
    // Contrast blends with the mean of the picture as the steps before it left it.
    let (before, after) = steps.split_at(contrast);
    change(rgb, before, 0.0, simd, cancel)?;
    if !after.is_empty() {
        change(rgb, after, mean_luma(rgb, simd), simd, cancel)?;
    }
    Ok(())
}

fn change(rgb: &mut [u8], steps: &[JitterStep], mean: f32, simd: Simd, cancel: &Cancel) -> Result<(), OpError> {
    let steps: Vec<ColourStep> = steps.iter().map(|step| step.on_picture(mean)).collect();
    for part in rgb.chunks_mut(CANCEL_STRIDE * 3) {
        cancel.check()?;
        change_colours(part, &steps, simd);
    }
    Ok(())
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
            Kind::Pixels(pixels) if !pixels.is_mask && !pixels.is_deep && pixels.channels == 3 => Some(kind.clone()),
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
            jitter(&mut pixels.memory, &steps, workspace.simd, workspace.cancel())?;
            sample.put(name, Value::Pixels(pixels));
        }
        Ok(())
    }
}
