//! Crops a region of fixed size at a random place, more often around the foreground than chance would.
//!
//! Like `MLPerf`'s `RandBalancedCrop`: with probability `oversampling` it chooses a class of the label, then one of the boxes
//! around its two largest components (see [`Foreground`]). Along each axis, the region contains a box that is shorter, and lies
//! inside a box that is longer. The exact place is drawn, then moved into the volume. Otherwise all places are equally likely.
//! Every place can occur, including the last one, which `MLPerf`'s code leaves out.

use feedline_order::Draw;
use serde::{Deserialize, Serialize};
use serde_inline_default::serde_inline_default;

use super::volumes::{Size3d, change_kinds, common_sides, image_and_label, volume};
use super::{FindForeground, On, Op, OpError};
use crate::batch::{FieldError, FieldTypes, Kind, Sample, Value, Volume, VolumeKind, volume_shape};
use crate::dtype::Dtype;
use crate::memory::Workspace;
use crate::op::CheckError;
use crate::volume::{Foreground, Region};

/// Crops volumes at random.
#[serde_inline_default]
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RandomBalancedCrop {
    size: Size3d,
    #[serde_inline_default(0.4)]
    oversampling: f64,
    #[serde(default = "image_and_label")]
    on: On,
}

/// The box that a draw selects, if there is one.
fn chosen(draw: &Draw, foreground: &Foreground) -> Option<Region> {
    let classes = foreground.classes();
    let (_, boxes) = classes.get(draw.below(1, classes.len() as u64) as usize)?;
    boxes.get(draw.below(2, boxes.len() as u64) as usize).copied()
}

impl Op for RandomBalancedCrop {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        self.size.check()?;
        if !(0.0..=1.0).contains(&self.oversampling) {
            let problem = format!("oversampling is {}; it must be a probability", self.oversampling);
            return Err(CheckError::Parameter(problem));
        }
        let is_label = |kind: &Kind| match kind {
            Kind::Volume(volume) => volume.is_label && volume.dtype == Dtype::U8,
            // Checked at run time, in `apply`.
            Kind::Any => true,
            _ => false,
        };
        if self.oversampling > 0.0 && !self.on.kinds(types)?.iter().any(|(_, kind)| is_label(kind)) {
            let problem = "oversampling needs a label of uint8 among its fields; give it in on=..., or set it to 0";
            return Err(CheckError::Parameter(problem.to_owned()));
        }
        let sides = Some(self.size.sides());
        change_kinds(&self.on, types, |_, kind| Ok(VolumeKind { sides, ..kind }))
    }

    fn is_random(&self) -> bool {
        true
    }

    fn needs_region(&self, draw: &Draw, sides: [usize; 3], foreground: &mut FindForeground<'_>) -> Option<Region> {
        let size = self.size.sides();
        if (0..3).any(|axis| sides[axis] < size[axis]) {
            // The volume is too small. `apply` reports both sizes.
            return None;
        }
        let target = if self.will_look_for_foreground(draw) { chosen(draw, &*foreground()?) } else { None };
        let start = std::array::from_fn(|axis| {
            let (side, last) = (size[axis], sides[axis] - size[axis]);
            // A number from 0 to `bound`, both included. Draw 0 decides whether, 1 and 2 which box, 3 to 5 where along each
            // axis.
            let below = |bound: usize| draw.below(3 + axis as u32, bound as u64 + 1) as usize;
            match target {
                None => below(last),
                Some(Region { start, sides }) if sides[axis] <= side => {
                    // A box that is shorter than the region: the region starts before it by at most the difference.
                    start[axis].saturating_sub(below(side - sides[axis])).min(last)
                }
                // A longer box: the region lies anywhere inside it.
                Some(Region { start, sides }) => start[axis] + below(sides[axis] - side),
            }
        });
        Some(Region { start, sides: size })
    }

    fn looks_for_foreground(&self) -> bool {
        self.oversampling > 0.0
    }

    fn will_look_for_foreground(&self, draw: &Draw) -> bool {
        draw.happens(0, self.oversampling)
    }

    fn apply(&self, sample: &mut Sample<'_>, draw: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        let sides = common_sides(sample, &self.on)?;
        let mut label = None;
        for name in self.on.names() {
            let Volume { is_label, dtype, .. } = *volume(sample, name)?;
            label = label.or((is_label && dtype == Dtype::U8).then_some(name));
        }
        if label.is_none() && self.looks_for_foreground() {
            let has = "no label of uint8".to_owned();
            let name = self.on.names().collect::<Vec<_>>().join(", ");
            return Err(FieldError::Unfit { name, has, needs: "a label among its fields" }.into());
        }
        // `needs_region` cannot fail, so an error of the search is passed on the side.
        let mut failure: Option<OpError> = None;
        let mut foreground = || {
            let found = volume(sample, label?).and_then(|label| label.foreground(workspace).map_err(OpError::from));
            found.map_err(|error| failure = Some(error)).ok()
        };
        let region = self.needs_region(draw, sides, &mut foreground);
        if let Some(failure) = failure {
            return Err(failure);
        }
        let region = region.ok_or(OpError::RegionTooLarge { size: self.size.sides(), has: sides })?;
        self.on.names().try_for_each(|name| crop(sample, name, region, workspace))
    }
}

/// Narrows a volume to a region. A volume that is already that region is left alone.
fn crop(sample: &mut Sample<'_>, name: &str, region: Region, workspace: &mut Workspace) -> Result<(), OpError> {
    let volume = sample.take_volume(name)?;
    let loaded = volume.excerpt.unwrap_or(Region::whole(volume.sides));
    assert!(loaded.contains(&region), "{loaded:?} is in memory, but {region:?} is needed");
    let Volume { dtype, channels, spacing, is_label, .. } = volume;
    // Loading has read only this region already.
    let memory = if loaded == region {
        volume.memory
    } else {
        let mut memory = sample.output(name, dtype, &volume_shape(channels, region.sides), workspace)?;
        let inner = region.within(&loaded);
        inner.copy_from(&volume.memory, channels, loaded.sides, dtype.bytes(), &mut memory);
        sample.give_back(name, volume.memory, workspace);
        memory
    };
    let cropped = Volume::packed(memory, dtype, channels, region.sides, is_label).with_spacing(spacing);
    sample.put(name, Value::Volume(cropped));
    Ok(())
}
