//! Values between two limits, then zero mean and unit deviation: `(clip(v, low, high) - mean) / std` in float32.

use feedline_order::Draw;
use serde::{Deserialize, Serialize};

use super::volumes::{change_floats, check_floats, check_positive};
use super::{NamedOp, On, Op, OpError};
use crate::batch::{FieldTypes, Sample};
use crate::memory::Workspace;
use crate::op::CheckError;

/// Limits and normalises volumes; the defaults are those of `MLPerf`'s 3D U-Net for CT.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClipNormalize {
    #[serde(default = "default_low")]
    low: f64,
    #[serde(default = "default_high")]
    high: f64,
    #[serde(default = "default_mean")]
    mean: f64,
    #[serde(default = "default_std")]
    std: f64,
    #[serde(default)]
    on: On,
}

fn default_low() -> f64 {
    -79.0
}

fn default_high() -> f64 {
    304.0
}

fn default_mean() -> f64 {
    101.0
}

fn default_std() -> f64 {
    76.9
}

impl NamedOp for ClipNormalize {
    const NAME: &'static str = "ClipNormalize";
}

impl Op for ClipNormalize {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        let Self { low, high, mean, std, .. } = *self;
        check_positive(Self::NAME, "std", std)?;
        if !(low <= high && low.is_finite() && high.is_finite() && mean.is_finite()) {
            let problem = format!("low is {low}, high {high}, mean {mean}; they are numbers with low <= high");
            return Err(CheckError::Parameter { op: Self::NAME, problem });
        }
        check_floats(Self::NAME, &self.on, types)
    }

    fn keeps_places(&self) -> bool {
        true
    }

    fn apply(&self, sample: &mut Sample<'_>, _: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        let [low, high, mean, std] = [self.low, self.high, self.mean, self.std].map(|number| number as f32);
        self.on.names().try_for_each(|name| {
            change_floats(sample, name, workspace, |_, elements| {
                for element in elements {
                    *element = ((f32::from_ne_bytes(*element).clamp(low, high) - mean) / std).to_ne_bytes();
                }
            })
        })
    }
}
