//! Pads volumes to a minimum size. A short side is padded at both ends, with half of the elements (rounded down) in front.

use feedline_order::Draw;
use serde::{Deserialize, Serialize};
use serde_inline_default::serde_inline_default;

use super::volumes::{Size3d, change_kinds, common_sides, image_and_label};
use super::{On, Op, OpError};
use crate::batch::{FieldError, FieldTypes, Kind, Sample, Value, Volume, VolumeKind, volume_shape};
use crate::dtype::Dtype;
use crate::memory::Workspace;
use crate::op::CheckError;

/// Pads volumes.
#[serde_inline_default]
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PadTo {
    size: Size3d,
    /// The value to pad images with. Labels are padded with 0. The default is the value with which `MLPerf`'s 3D U-Net pads
    /// normalised CT images at evaluation.
    #[serde_inline_default(-2.2)]
    fill: f64,
    #[serde(default)]
    mode: PadMode,
    #[serde(default = "image_and_label")]
    on: On,
}

/// The content of the padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum PadMode {
    /// A constant value.
    #[default]
    Constant,
    /// The nearest element of the volume.
    Edge,
}

/// The fields that can be padded with a value.
const NEEDS: &str = "a volume of float32, or a label";

impl PadTo {
    /// Whether a volume of this element type can be padded.
    fn has_fill(&self, dtype: Dtype, is_label: bool) -> bool {
        dtype == Dtype::F32 || is_label || self.mode == PadMode::Edge
    }
}

impl Op for PadTo {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        self.size.check()?;
        change_kinds(&self.on, types, |field, kind| {
            if !self.has_fill(kind.dtype, kind.is_label) {
                let (field, has) = (field.to_owned(), Kind::Volume(kind));
                return Err(CheckError::Needs { needs: NEEDS, field, has });
            }
            let sides = kind.sides.map(|sides| padded_sides(sides, self.size.sides()));
            Ok(VolumeKind { sides, ..kind })
        })
    }

    fn apply(&self, sample: &mut Sample<'_>, _: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        let old = common_sides(sample, &self.on)?;
        let new = padded_sides(old, self.size.sides());
        if new == old {
            return Ok(());
        }
        for name in self.on.names() {
            let volume = sample.take_volume(name)?;
            let mut memory = sample.output(name, volume.dtype, &volume_shape(volume.channels, new), workspace)?;
            let mut fill = vec![0; volume.dtype.bytes()];
            if volume.dtype == Dtype::F32 && !volume.is_label {
                fill.copy_from_slice(&(self.fill as f32).to_ne_bytes());
            } else if !self.has_fill(volume.dtype, volume.is_label) {
                let has = format!("a volume of {}", volume.dtype.name());
                return Err(FieldError::Unfit { name: name.to_owned(), has, needs: NEEDS }.into());
            }
            let old_bytes = old.iter().product::<usize>() * fill.len();
            let new_bytes = memory.len() / volume.channels;
            let padding = Padding { old, new, fill: &fill, mode: self.mode };
            for (source, target) in volume.memory.chunks_exact(old_bytes).zip(memory.chunks_exact_mut(new_bytes)) {
                workspace.cancel().check()?;
                padding.fill_borders(source, target);
            }
            let padded = Volume::packed(memory, volume.dtype, volume.channels, new, volume.is_label);
            let padded = padded.with_spacing(volume.spacing);
            sample.give_back(name, volume.memory, workspace);
            sample.put(name, Value::Volume(padded));
        }
        Ok(())
    }
}

fn padded_sides(sides: [usize; 3], minimum: [usize; 3]) -> [usize; 3] {
    std::array::from_fn(|axis| sides[axis].max(minimum[axis]))
}

/// How one channel is padded.
struct Padding<'a> {
    /// Its sides before padding.
    old: [usize; 3],
    /// Its sides after padding.
    new: [usize; 3],
    /// The bytes of an added element in constant mode.
    fill: &'a [u8],
    mode: PadMode,
}

impl Padding<'_> {
    /// Copies `source` into the middle of `target`, and fills the rest.
    fn fill_borders(&self, source: &[u8], target: &mut [u8]) {
        let Self { old, new, fill, mode } = *self;
        let element = fill.len();
        let front: [usize; 3] = std::array::from_fn(|axis| (new[axis] - old[axis]) / 2);
        // The source index of an element along an axis. `None` for an added element.
        let from = |axis: usize, place: usize| match place.checked_sub(front[axis]) {
            Some(old_place) if old_place < old[axis] => Some(old_place),
            // `None` lies before the volume, `Some` after it.
            outside if mode == PadMode::Edge => Some(outside.map_or(0, |_| old[axis] - 1)),
            _ => None,
        };
        let row_bytes = new[2] * element;
        for (number, target) in target.chunks_exact_mut(row_bytes).enumerate() {
            let (Some(z), Some(y)) = (from(0, number / new[1]), from(1, number % new[1])) else {
                // The whole row lies outside the volume.
                repeat(fill, target);
                continue;
            };
            let row = &source[(z * old[1] + y) * old[2] * element..][..old[2] * element];
            let (before, rest) = target.split_at_mut(front[2] * element);
            let (middle, after) = rest.split_at_mut(row.len());
            middle.copy_from_slice(row);
            let is_edge = mode == PadMode::Edge;
            repeat(if is_edge { &row[..element] } else { fill }, before);
            repeat(if is_edge { &row[row.len() - element..] } else { fill }, after);
        }
    }
}

fn repeat(element: &[u8], target: &mut [u8]) {
    target.chunks_exact_mut(element.len()).for_each(|target| target.copy_from_slice(element));
}
