//! Resamples volumes to another spacing: images trilinearly, labels by the nearest element.
//!
//! The new sides are `floor(side * spacing / new spacing)`, at least 1. The spacing is that of the first field.

use feedline_order::Draw;
use serde::{Deserialize, Serialize};
use serde_inline_default::serde_inline_default;

use super::volumes::{change_kinds, check_positive, common_sides, image_and_label, volume};
use super::{On, Op, OpError};
use crate::batch::{FieldError, FieldTypes, Kind, Sample, Value, Volume, VolumeKind, volume_shape};
use crate::dtype::Dtype;
use crate::memory::Workspace;
use crate::op::CheckError;
use crate::volume::{Resampling, place_bytes};

/// Spacings are stored as float32. A side within this distance of an integer counts as that integer.
const TOLERANCE: f64 = 1e-4;

/// Resamples volumes.
#[serde_inline_default]
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResampleSpacing {
    /// Millimetres along depth, height and width. The default is that of `MLPerf`'s 3D U-Net.
    #[serde_inline_default([1.6, 1.2, 1.2])]
    spacing: [f64; 3],
    #[serde(default = "image_and_label")]
    on: On,
}

impl ResampleSpacing {
    fn new_sides(&self, sides: [usize; 3], spacing: [f64; 3]) -> [usize; 3] {
        std::array::from_fn(|axis| {
            let side = sides[axis] as f64 * (spacing[axis] / self.spacing[axis]);
            // The cast truncates, which is the floor of a positive number.
            ((side + TOLERANCE) as usize).max(1)
        })
    }
}

impl Op for ResampleSpacing {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        self.spacing.iter().try_for_each(|&spacing| check_positive("spacing", spacing))?;
        change_kinds(&self.on, types, |field, kind| {
            let required = if kind.is_label { Dtype::U8 } else { Dtype::F32 };
            if kind.dtype != required {
                let (field, has) = (field.to_owned(), Kind::Volume(kind));
                let needs = "an image of float32 or a label of uint8";
                return Err(CheckError::Needs { needs, field, has });
            }
            Ok(VolumeKind { sides: None, ..kind })
        })
    }

    fn apply(&self, sample: &mut Sample<'_>, _: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        let old = common_sides(sample, &self.on)?;
        let first = self.on.names().next().unwrap_or_default();
        let spacing = volume(sample, first)?.spacing.ok_or_else(|| OpError::NoSpacing { field: first.to_owned() })?;
        if !spacing.iter().all(|spacing| *spacing > 0.0 && spacing.is_finite()) {
            return Err(OpError::Spacing { field: first.to_owned(), spacing });
        }
        let new = self.new_sides(old, spacing);
        for name in self.on.names() {
            let source = sample.take_volume(name)?;
            // Only the spacing changes: it is set to the requested one.
            if new == old {
                sample.put(name, Value::Volume(source.with_spacing(Some(self.spacing))));
                continue;
            }
            let mut memory = sample.output(name, source.dtype, &volume_shape(source.channels, new), workspace)?;
            // A long thin volume has almost as many places as elements.
            workspace.reserve(place_bytes(new))?;
            let resampling = Resampling { old, new };
            match (source.dtype, source.is_label) {
                (Dtype::U8, true) => resampling.nearest(&source.memory, &mut memory, workspace)?,
                (Dtype::F32, false) => resampling.trilinear(&source.memory, &mut memory, workspace)?,
                (dtype, _) => {
                    let has = format!("a volume of {}", dtype.name());
                    let needs = "an image of float32 or a label of uint8";
                    return Err(FieldError::Unfit { name: name.to_owned(), has, needs }.into());
                }
            }
            let resampled = Volume::packed(memory, source.dtype, source.channels, new, source.is_label);
            sample.give_back(name, source.memory, workspace);
            sample.put(name, Value::Volume(resampled.with_spacing(Some(self.spacing))));
        }
        Ok(())
    }
}
