//! Clips and normalises values: `(clip(v, low, high) - mean) / std` in float32.

use feedline_order::Draw;
use serde::{Deserialize, Serialize};
use serde_inline_default::serde_inline_default;

use super::volumes::{change_floats, check_floats, check_positive};
use super::{On, Op, OpError};
use crate::batch::{FieldTypes, Sample};
use crate::memory::Workspace;
use crate::op::CheckError;

/// Clips and normalises volumes. The defaults are those of `MLPerf`'s 3D U-Net for CT.
#[serde_inline_default]
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClipNormalize {
    #[serde_inline_default(-79.0)]
    low: f64,
    #[serde_inline_default(304.0)]
    high: f64,
    #[serde_inline_default(101.0)]
    mean: f64,
    #[serde_inline_default(76.9)]
    std: f64,
    #[serde(default)]
    on: On,
}

impl Op for ClipNormalize {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        let Self { low, high, mean, std, .. } = *self;
        check_positive("std", std)?;
        if !(low <= high && low.is_finite() && high.is_finite() && mean.is_finite()) {
            let problem = format!("low is {low}, high {high}, mean {mean}; they are numbers with low <= high");
            return Err(CheckError::Parameter(problem));
        }
        check_floats(&self.on, types)
    }

    fn keeps_places(&self) -> bool {
        true
    }

    fn apply(&self, sample: &mut Sample<'_>, _: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        let [low, high, mean, std] = [self.low, self.high, self.mean, self.std].map(|number| number as f32);
        self.on.names().try_for_each(|name| {
            change_floats(sample, name, workspace, |_, elements| {
                for element in elements {
                    // NaN stays NaN: `clamp` does not hide a damaged volume.
                    *element = ((f32::from_ne_bytes(*element).clamp(low, high) - mean) / std).to_ne_bytes();
                }
            })
        })
    }
}
