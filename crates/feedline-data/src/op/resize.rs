//! Resizes with antialiasing, as torchvision's `Resize`.

use feedline_order::Draw;
use serde::{Deserialize, Serialize};

use super::pixels::{Interpolation, common_size, resize};
use super::size::{MAX_SIDE, Size};
use super::{Ahead, Facts, LaterNeed, Need, On, Op, OpError};
use crate::batch::{FieldTypes, PixelKind, Sample};
use crate::memory::Workspace;
use crate::op::CheckError;

/// Resizes pictures. A single number is the shorter side; two are height and width.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resize {
    size: Size,
    #[serde(default)]
    interpolation: Interpolation,
    /// Upper limit of the longer side. The shorter side may become smaller than `size` for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_size: Option<u32>,
    #[serde(default)]
    on: On,
}

impl Resize {
    /// Height and width of the result.
    fn target(&self, width: u32, height: u32) -> (u32, u32) {
        let short_target = match self.size {
            Size::Sides([height, width]) => return (height, width),
            Size::Square(side) => side,
        };
        let (short, long) = (width.min(height), width.max(height));
        let mut new_short = u64::from(short_target);
        // Integer division truncates, as `int()` does in torchvision.
        let mut new_long = new_short * u64::from(long) / u64::from(short);
        if let Some(limit) = self.max_size.map(u64::from).filter(|&limit| new_long > limit) {
            new_short = limit * new_short / new_long;
            new_long = limit;
        }
        let side = |side: u64| side.clamp(1, u64::from(MAX_SIDE)) as u32;
        // The pair is height and width, and the width is the shorter side here.
        if width <= height { (side(new_long), side(new_short)) } else { (side(new_short), side(new_long)) }
    }
}

impl Op for Resize {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        self.size.check()?;
        let problem = match (self.size, self.max_size) {
            (Size::Square(side), Some(limit)) if limit <= side => {
                Some(format!("max_size is {limit}, but has to exceed size, which is {side}"))
            }
            (Size::Sides(_), Some(_)) => Some("max_size needs a single number for size, the shorter side".to_owned()),
            _ => None,
        };
        if let Some(problem) = problem {
            return Err(CheckError::Parameter(problem));
        }
        self.on.change_pixels(types, |kind| match self.size {
            Size::Sides([height, width]) => PixelKind { height: Some(height), width: Some(width), ..kind },
            Size::Square(_) => match (kind.width, kind.height) {
                (Some(width), Some(height)) => {
                    let (height, width) = self.target(width, height);
                    PixelKind { height: Some(height), width: Some(width), ..kind }
                }
                // Only the shorter side is fixed. The other one depends on the picture.
                _ => PixelKind { height: None, width: None, ..kind },
            },
        })
    }

    fn resolve(&self, _: &Draw, facts: Facts) -> Vec<(&'static str, f64)> {
        let (height, width) = self.target(facts.width, facts.height);
        vec![("height", f64::from(height)), ("width", f64::from(width))]
    }

    fn needs(&self, _: &Draw, facts: Facts, later: &LaterNeed<'_>) -> Option<Need> {
        let (height, width) = self.target(facts.width, facts.height);
        let Need { rect, .. } = later(Facts { width, height })?;
        let resizing = self.interpolation.resizing((facts.width, facts.height), (width, height));
        // A decoder must not choose a smaller scale: this op makes the picture smaller, as its result is defined by all pixels.
        Some(Need { rect: resizing.source_rect(rect), resized: None })
    }

    fn apply(&self, sample: &mut Sample<'_>, _: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        let (width, height) = common_size(sample, &self.on)?;
        resize(sample, &self.on, self.target(width, height), self.interpolation, |_, _| None, workspace)
    }

    fn apply_ahead(
        &self,
        sample: &mut Sample<'_>,
        _: &Draw,
        ahead: &Ahead<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), OpError> {
        let (width, height) = common_size(sample, &self.on)?;
        let need = |name: &str, result: Facts| Some(ahead.need(name, result)?.rect);
        resize(sample, &self.on, self.target(width, height), self.interpolation, need, workspace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_is_the_shorter_side_as_in_torchvision() {
        let check = |size, max_size, (width, height), target| {
            let op = Resize { size, interpolation: Interpolation::Bilinear, max_size, on: On::default() };
            assert_eq!(op.target(width, height), target);
        };
        check(Size::Square(256), None, (500, 375), (256, 341));
        check(Size::Square(256), None, (375, 500), (341, 256));
        check(Size::Square(256), Some(300), (500, 375), (225, 300));
        check(Size::Sides([10, 20]), None, (500, 375), (10, 20));
        check(Size::Square(1), None, (1, 20_000), (20_000, 1));
    }
}
