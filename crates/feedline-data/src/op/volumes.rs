//! Shared code of the ops on volumes: applies one decision to several volumes with the same sides.

use serde::{Deserialize, Serialize};

use super::{On, OpError};
use crate::batch::{FieldError, FieldTypes, Kind, Sample, Value, Volume, VolumeKind};
use crate::dtype::Dtype;
use crate::memory::Workspace;
use crate::op::CheckError;

/// Number of elements between two checks for cancellation.
pub(super) const PIECE: usize = 1 << 21;
/// Upper limit of a side.
const MAX_SIDE: usize = 1 << 16;

/// The fields of an image and its label.
pub(super) fn image_and_label() -> On {
    On::from(vec!["image".to_owned(), "label".to_owned()])
}

/// The sides of a region: one number for all three, or depth, height and width.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(untagged, expecting = "size is one whole number, or three: depth, height, width")]
pub(super) enum Size3d {
    All(usize),
    Each([usize; 3]),
}

impl Size3d {
    pub(super) fn sides(self) -> [usize; 3] {
        match self {
            Self::All(side) => [side; 3],
            Self::Each(sides) => sides,
        }
    }

    pub(super) fn check(self) -> Result<(), CheckError> {
        let sides = self.sides();
        if sides.iter().all(|side| (1..=MAX_SIDE).contains(side)) {
            return Ok(());
        }
        Err(CheckError::Parameter(format!("size is {sides:?}; a side lies between 1 and {MAX_SIDE}")))
    }
}

/// Rejects a parameter that is not a positive number.
pub(super) fn check_positive(name: &str, value: f64) -> Result<(), CheckError> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(CheckError::Parameter(format!("{name} is {value}; it has to be above 0")))
}

/// Checks that all fields are volumes, and sets the kind of each after the op.
pub(super) fn change_kinds(
    on: &On,
    types: &mut FieldTypes,
    change: impl Fn(&str, VolumeKind) -> Result<VolumeKind, CheckError>,
) -> Result<(), CheckError> {
    for (field, kind) in on.kinds(types)? {
        match kind {
            Kind::Volume(volume) => types.set(&field, Kind::Volume(change(&field, volume)?)),
            // The result of a user's function is checked at run time.
            Kind::Any => {}
            has => return Err(CheckError::Needs { needs: "a volume", field, has }),
        }
    }
    Ok(())
}

/// Checks that all fields are float32 volumes, which they stay.
pub(super) fn check_floats(on: &On, types: &mut FieldTypes) -> Result<(), CheckError> {
    change_kinds(on, types, |field, volume| {
        if volume.dtype == Dtype::F32 {
            return Ok(volume);
        }
        let (field, has) = (field.to_owned(), Kind::Volume(volume));
        Err(CheckError::Needs { needs: "a volume of float32", field, has })
    })
}

/// The volume of a field.
pub(super) fn volume<'v, 's>(sample: &'v mut Sample<'s>, name: &str) -> Result<&'v mut Volume<'s>, OpError> {
    match sample.get(name)? {
        Value::Volume(volume) => Ok(volume),
        other => {
            let has = other.describe();
            Err(FieldError::Kind { name: name.to_owned(), has, needs: "a volume" }.into())
        }
    }
}

/// Changes every element of a float32 volume in place, piece by piece. `change` gets a piece and the number of its first element.
pub(super) fn change_floats(
    sample: &mut Sample<'_>,
    name: &str,
    workspace: &Workspace,
    mut change: impl FnMut(usize, &mut [[u8; 4]]),
) -> Result<(), OpError> {
    let volume = volume(sample, name)?;
    if volume.dtype != Dtype::F32 {
        let has = format!("a volume of {}", volume.dtype.name());
        return Err(FieldError::Unfit { name: name.to_owned(), has, needs: "float32" }.into());
    }
    for (number, piece) in volume.memory.as_chunks_mut::<4>().0.chunks_mut(PIECE).enumerate() {
        workspace.cancel().check()?;
        // The number of the first element, so that noise does not depend on the size of the pieces.
        change(number * PIECE, piece);
    }
    Ok(())
}

/// The sides of all fields of `on`.
pub(super) fn common_sides(sample: &mut Sample<'_>, on: &On) -> Result<[usize; 3], OpError> {
    let mut first: Option<(&str, [usize; 3])> = None;
    for name in on.names() {
        let sides = volume(sample, name)?.sides;
        match first {
            None => first = Some((name, sides)),
            Some((_, common)) if common == sides => {}
            Some((other, common)) => {
                return Err(OpError::SidesDiffer(other.to_owned(), common, name.to_owned(), sides));
            }
        }
    }
    Ok(first.map(|(_, sides)| sides).unwrap_or_default())
}
