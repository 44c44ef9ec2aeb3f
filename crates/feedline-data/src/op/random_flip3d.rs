//! Mirrors volumes along each axis, with a probability for each.

use feedline_order::Draw;
use serde::{Deserialize, Serialize};
use serde_inline_default::serde_inline_default;

use super::volumes::{change_kinds, common_sides, image_and_label, volume};
use super::{On, Op, OpError};
use crate::batch::{FieldTypes, Sample, Value, Volume};
use crate::memory::{Cancelled, Workspace};
use crate::op::CheckError;

/// Mirrors along depth, height and width, each with probability `p`.
#[serde_inline_default]
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RandomFlip3d {
    #[serde_inline_default(1.0 / 3.0)]
    p: f64,
    #[serde(default = "image_and_label")]
    on: On,
}

impl RandomFlip3d {
    fn axes(&self, draw: &Draw) -> [bool; 3] {
        [0, 1, 2].map(|axis| draw.happens(axis, self.p))
    }
}

impl Op for RandomFlip3d {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        CheckError::probability(self.p)?;
        change_kinds(&self.on, types, |_, kind| Ok(kind))
    }

    fn is_random(&self) -> bool {
        self.p > 0.0 && self.p < 1.0
    }

    fn fires(&self, draw: &Draw) -> bool {
        self.axes(draw).contains(&true)
    }

    fn apply(&self, sample: &mut Sample<'_>, draw: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        if !self.fires(draw) {
            return Ok(());
        }
        common_sides(sample, &self.on)?;
        // The same axes for all fields, so image and label still match.
        let axes = self.axes(draw);
        for name in self.on.names() {
            let Volume { dtype, sides, .. } = *volume(sample, name)?;
            let mut volume = sample.take_volume(name)?;
            for channel in volume.memory.chunks_exact_mut(sides.iter().product::<usize>() * dtype.bytes()) {
                match dtype.bytes() {
                    1 => flip::<1>(channel, sides, axes, workspace)?,
                    2 => flip::<2>(channel, sides, axes, workspace)?,
                    4 => flip::<4>(channel, sides, axes, workspace)?,
                    _ => flip::<8>(channel, sides, axes, workspace)?,
                }
            }
            // The boxes of the foreground are at other places now.
            sample.put(name, Value::Volume(volume.with_foreground(None)));
        }
        Ok(())
    }
}

fn flip<const N: usize>(
    volume: &mut [u8],
    [_, height, width]: [usize; 3],
    [depth_axis, height_axis, width_axis]: [bool; 3],
    workspace: &Workspace,
) -> Result<(), Cancelled> {
    if depth_axis {
        // A plane is contiguous, so the depth axis is flipped by swapping planes, the height axis by swapping rows.
        flip_pieces(volume, height * width * N);
    }
    for plane in volume.chunks_exact_mut(height * width * N) {
        workspace.cancel().check()?;
        if height_axis {
            flip_pieces(plane, width * N);
        }
        if width_axis {
            plane.as_chunks_mut::<N>().0.chunks_exact_mut(width).for_each(<[_]>::reverse);
        }
    }
    Ok(())
}

/// Reverses the order of pieces of a given length.
fn flip_pieces(mut rest: &mut [u8], piece: usize) {
    while rest.len() >= 2 * piece {
        let (first, others) = rest.split_at_mut(piece);
        let (middle, last) = others.split_at_mut(others.len() - piece);
        first.swap_with_slice(last);
        rest = middle;
    }
}
