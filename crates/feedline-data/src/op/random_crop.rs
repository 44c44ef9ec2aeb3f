//! Crops a part of fixed size at a random place, as torchvision's `RandomCrop`.

use feedline_codec::Rect;
use feedline_order::Draw;
use serde::{Deserialize, Serialize};

use super::pad::{Border, Padding, PaddingMode, pad_and_crop};
use super::pixels::{common_size, crop};
use super::size::{MAX_SIDE, Size};
use super::{Facts, LaterNeed, Need, On, Op, OpError};
use crate::batch::{FieldTypes, Sample};
use crate::memory::Workspace;
use crate::op::CheckError;

/// Crops at random.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RandomCrop {
    size: Size,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    padding: Option<Sides>,
    #[serde(default)]
    pad_if_needed: bool,
    #[serde(default)]
    fill: u8,
    #[serde(default)]
    padding_mode: PaddingMode,
    #[serde(default)]
    on: On,
}

/// All sides; left/right and top/bottom; or left, top, right, bottom.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(untagged, expecting = "padding is one whole number, two or four")]
enum Sides {
    All(u32),
    Two([u32; 2]),
    Four([u32; 4]),
}

impl RandomCrop {
    fn padding(&self, width: u32, height: u32) -> Padding {
        let mut padding = match self.padding {
            None => Padding::default(),
            Some(Sides::All(all)) => Padding { left: all, top: all, right: all, bottom: all },
            Some(Sides::Two([x, y])) => Padding { left: x, top: y, right: x, bottom: y },
            Some(Sides::Four([left, top, right, bottom])) => Padding { left, top, right, bottom },
        };
        if self.pad_if_needed {
            let (target_height, target_width) = self.size.height_width();
            // As in torchvision, the missing pixels are added on both sides, each time in full.
            let x = target_width.saturating_sub(width + padding.left + padding.right);
            let y = target_height.saturating_sub(height + padding.top + padding.bottom);
            padding.left += x;
            padding.right += x;
            padding.top += y;
            padding.bottom += y;
        }
        padding
    }

    fn rect(&self, draw: &Draw, width: u32, height: u32) -> Option<Rect> {
        let (target_height, target_width) = self.size.height_width();
        let (x, y) = (width.checked_sub(target_width)?, height.checked_sub(target_height)?);
        Some(Rect {
            // Plus one, because the last place is allowed too.
            top: draw.below(0, u64::from(y) + 1) as u32,
            left: draw.below(1, u64::from(x) + 1) as u32,
            width: target_width,
            height: target_height,
        })
    }
}

impl Op for RandomCrop {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        self.size.check()?;
        // The smallest picture needs the most padding.
        let padding = self.padding(1, 1);
        if [padding.left, padding.top, padding.right, padding.bottom].iter().any(|&side| side > MAX_SIDE) {
            return Err(CheckError::Parameter(format!("padding exceeds {MAX_SIDE}")));
        }
        self.on.fix_size(types, self.size.height_width())
    }

    fn is_random(&self) -> bool {
        true
    }

    fn resolve(&self, draw: &Draw, facts: Facts) -> Vec<(&'static str, f64)> {
        let padding = self.padding(facts.width, facts.height);
        let (width, height) = padding.padded(facts.width, facts.height);
        match self.rect(draw, width, height) {
            Some(rect) => vec![("left", f64::from(rect.left)), ("top", f64::from(rect.top))],
            None => Vec::new(),
        }
    }

    fn needs(&self, draw: &Draw, facts: Facts, _: &LaterNeed<'_>) -> Option<Need> {
        let Facts { width, height } = facts;
        // A padded picture is needed as a whole.
        let rect = self.rect(draw, width, height).filter(|_| self.padding(width, height).is_none())?;
        Some(Need { rect, resized: None })
    }

    fn apply(&self, sample: &mut Sample<'_>, draw: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        let (width, height) = common_size(sample, &self.on)?;
        let padding = self.padding(width, height);
        let (has_width, has_height) = padding.padded(width, height);
        let (height, width) = self.size.height_width();
        let rect = self.rect(draw, has_width, has_height).ok_or(OpError::CropTooLarge {
            width,
            height,
            has_width,
            has_height,
        })?;
        if padding.is_none() {
            return crop(sample, &self.on, rect);
        }
        let border = Border { padding, mode: self.padding_mode, fill: self.fill };
        pad_and_crop(sample, &self.on, border, rect, workspace)
    }
}
