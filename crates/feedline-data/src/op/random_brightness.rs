//! Multiplies values by a random factor, with a probability.

use feedline_order::Draw;
use serde::{Deserialize, Serialize};
use serde_inline_default::serde_inline_default;

use super::volumes::{change_floats, check_floats};
use super::{On, Op, OpError};
use crate::batch::{FieldTypes, Sample};
use crate::memory::Workspace;
use crate::op::CheckError;

/// Multiplies by a number between `1 - factor` and `1 + factor`.
#[serde_inline_default]
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RandomBrightness {
    #[serde_inline_default(0.3)]
    factor: f64,
    #[serde_inline_default(0.1)]
    p: f64,
    #[serde(default)]
    on: On,
}

impl Op for RandomBrightness {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        CheckError::probability(self.p)?;
        if !(0.0..=1.0).contains(&self.factor) {
            let problem = format!("factor is {}; it lies between 0 and 1", self.factor);
            return Err(CheckError::Parameter(problem));
        }
        check_floats(&self.on, types)
    }

    fn is_random(&self) -> bool {
        self.p > 0.0
    }

    fn fires(&self, draw: &Draw) -> bool {
        draw.happens(0, self.p)
    }

    fn keeps_places(&self) -> bool {
        true
    }

    fn apply(&self, sample: &mut Sample<'_>, draw: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        if !self.fires(draw) {
            return Ok(());
        }
        // Draw 0 decides whether the op applies.
        let factor = draw.between(1, 1.0 - self.factor, 1.0 + self.factor) as f32;
        self.on.names().try_for_each(|name| {
            change_floats(sample, name, workspace, |_, elements| {
                for element in elements {
                    *element = (f32::from_ne_bytes(*element) * factor).to_ne_bytes();
                }
            })
        })
    }
}
