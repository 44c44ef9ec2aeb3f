//! Crops the centre of a picture, as torchvision's `CenterCrop`. Smaller pictures are padded with zeros.

use feedline_codec::Rect;
use feedline_order::Draw;
use serde::{Deserialize, Serialize};

use super::pad::{Border, Padding, PaddingMode, pad_and_crop};
use super::pixels::{common_size, crop};
use super::size::Size;
use super::{Facts, LaterNeed, Need, On, Op, OpError};
use crate::batch::{FieldTypes, Sample};
use crate::memory::Workspace;
use crate::op::CheckError;

/// Crops the centre.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CenterCrop {
    size: Size,
    #[serde(default)]
    on: On,
}

impl CenterCrop {
    fn padding(&self, width: u32, height: u32) -> Padding {
        let (target_height, target_width) = self.size.height_width();
        let (x, y) = (target_width.saturating_sub(width), target_height.saturating_sub(height));
        // As in torchvision: an odd missing pixel is added at the right or bottom.
        Padding { left: x / 2, top: y / 2, right: x.div_ceil(2), bottom: y.div_ceil(2) }
    }

    fn rect(&self, width: u32, height: u32) -> Rect {
        let (target_height, target_width) = self.size.height_width();
        // Python's `round`, which torchvision uses, rounds a half to the even neighbour.
        let middle = |side: u32, target: u32| (f64::from(side - target) / 2.0).round_ties_even() as u32;
        Rect {
            left: middle(width, target_width),
            top: middle(height, target_height),
            width: target_width,
            height: target_height,
        }
    }
}

impl Op for CenterCrop {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        self.size.check()?;
        self.on.fix_size(types, self.size.height_width())
    }

    fn resolve(&self, _: &Draw, facts: Facts) -> Vec<(&'static str, f64)> {
        let (height, width) = self.size.height_width();
        let rect = self.rect(facts.width.max(width), facts.height.max(height));
        vec![("left", f64::from(rect.left)), ("top", f64::from(rect.top))]
    }

    fn needs(&self, _: &Draw, facts: Facts, _: &LaterNeed<'_>) -> Option<Need> {
        let Facts { width, height } = facts;
        // A picture that is padded is needed as a whole.
        self.padding(width, height).is_none().then(|| Need { rect: self.rect(width, height), resized: None })
    }

    fn apply(&self, sample: &mut Sample<'_>, _: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        let (width, height) = common_size(sample, &self.on)?;
        let padding = self.padding(width, height);
        let (width, height) = padding.padded(width, height);
        let rect = self.rect(width, height);
        if padding.is_none() {
            return crop(sample, &self.on, rect);
        }
        let border = Border { padding, mode: PaddingMode::Constant, fill: 0 };
        pad_and_crop(sample, &self.on, border, rect, workspace)
    }
}
