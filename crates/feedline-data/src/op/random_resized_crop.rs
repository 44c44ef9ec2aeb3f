//! Crops a part of random area and aspect ratio and resizes it: torchvision's `RandomResizedCrop`.

use feedline_codec::Rect;
use feedline_order::Draw;
use serde::{Deserialize, Serialize};
use serde_inline_default::serde_inline_default;

use super::pixels::{Interpolation, common_size, crop, resize};
use super::size::Size;
use super::{Facts, LaterNeed, Need, On, Op, OpError};
use crate::batch::{FieldTypes, PixelKind, Sample};
use crate::memory::Workspace;
use crate::op::CheckError;

const ATTEMPTS: u32 = 10;

/// Crops at random and resizes.
#[serde_inline_default]
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RandomResizedCrop {
    size: Size,
    /// Least and greatest fraction of the picture's area.
    #[serde_inline_default([0.08, 1.0])]
    scale: [f64; 2],
    /// Least and greatest aspect ratio (width / height).
    #[serde_inline_default([3.0 / 4.0, 4.0 / 3.0])]
    ratio: [f64; 2],
    #[serde(default)]
    interpolation: Interpolation,
    #[serde(default)]
    on: On,
}

impl RandomResizedCrop {
    fn rect(&self, draw: &Draw, width: u32, height: u32) -> Rect {
        let (log_low, log_high) = (libm::log(self.ratio[0]), libm::log(self.ratio[1]));
        let (full_width, full_height) = (f64::from(width), f64::from(height));
        for attempt in 0..ATTEMPTS {
            // Each attempt has four draws of its own, so a rejected attempt does not shift later draws.
            let first = attempt * 4;
            let area = full_width * full_height * draw.between(first, self.scale[0], self.scale[1]);
            // The aspect ratio is uniform on a logarithmic scale. `libm` gives the same bits on every machine.
            let aspect = libm::exp(draw.between(first + 1, log_low, log_high));
            let crop_width = (area * aspect).sqrt().round_ties_even();
            let crop_height = (area / aspect).sqrt().round_ties_even();
            if crop_width >= 1.0 && crop_width <= full_width && crop_height >= 1.0 && crop_height <= full_height {
                let (crop_width, crop_height) = (crop_width as u32, crop_height as u32);
                return Rect {
                    top: draw.below(first + 2, u64::from(height - crop_height) + 1) as u32,
                    left: draw.below(first + 3, u64::from(width - crop_width) + 1) as u32,
                    width: crop_width,
                    height: crop_height,
                };
            }
        }
        self.central_rect(width, height)
    }

    /// The largest central part with an allowed aspect ratio. Used if ten draws did not fit.
    fn central_rect(&self, width: u32, height: u32) -> Rect {
        let aspect = f64::from(width) / f64::from(height);
        let side = |side: f64, limit: u32| (side.round_ties_even() as u32).clamp(1, limit);
        let (crop_width, crop_height) = if aspect < self.ratio[0] {
            (width, side(f64::from(width) / self.ratio[0], height))
        } else if aspect > self.ratio[1] {
            (side(f64::from(height) * self.ratio[1], width), height)
        } else {
            (width, height)
        };
        let (left, top) = ((width - crop_width) / 2, (height - crop_height) / 2);
        Rect { left, top, width: crop_width, height: crop_height }
    }
}

impl Op for RandomResizedCrop {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        self.size.check()?;
        CheckError::range("scale", self.scale)?;
        CheckError::range("ratio", self.ratio)?;
        let (height, width) = self.size.height_width();
        self.on.change_pixels(types, |kind| PixelKind { height: Some(height), width: Some(width), ..kind })
    }

    fn is_random(&self) -> bool {
        true
    }

    fn resolve(&self, draw: &Draw, facts: Facts) -> Vec<(&'static str, f64)> {
        let rect = self.rect(draw, facts.width, facts.height);
        vec![
            ("left", f64::from(rect.left)),
            ("top", f64::from(rect.top)),
            ("width", f64::from(rect.width)),
            ("height", f64::from(rect.height)),
        ]
    }

    fn needs(&self, draw: &Draw, facts: Facts, _: &LaterNeed<'_>) -> Option<Need> {
        let (height, width) = self.size.height_width();
        // With the target size a decoder may choose a smaller scale, if approximate pixels are allowed.
        Some(Need { rect: self.rect(draw, facts.width, facts.height), resized: Some((width, height)) })
    }

    fn apply(&self, sample: &mut Sample<'_>, draw: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        let (width, height) = common_size(sample, &self.on)?;
        // Only narrows the view. `resize` reads the pixels of the crop and no others.
        crop(sample, &self.on, self.rect(draw, width, height))?;
        resize(sample, &self.on, self.size.height_width(), self.interpolation, |_, _| None, workspace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_order::random::{Purpose, StreamKey};
    use feedline_order::{Epoch, Occurrence, SampleId, SampleRequest, Seed};

    #[test]
    fn crops_lie_inside_and_have_the_requested_area_and_aspect() {
        let op = RandomResizedCrop {
            size: Size::Square(224),
            scale: [0.08, 1.0],
            ratio: [3.0 / 4.0, 4.0 / 3.0],
            interpolation: Interpolation::Bilinear,
            on: On::default(),
        };
        let key = StreamKey::new(Seed(1), Epoch(0), Purpose::Op(1));
        let draw = |id| Draw::new(key, SampleRequest { id: SampleId(id), epoch: Epoch(0), occurrence: Occurrence(0) });
        for id in 0..2000 {
            let rect = op.rect(&draw(id), 500, 375);
            assert!(rect.left + rect.width <= 500 && rect.top + rect.height <= 375);
            let area = f64::from(rect.width * rect.height) / (500.0 * 375.0);
            assert!((0.07..=1.0).contains(&area), "area {area}");
            let aspect = f64::from(rect.width) / f64::from(rect.height);
            assert!((0.73..=1.36).contains(&aspect), "aspect {aspect}");
        }
        for (width, height) in [(1, 1), (1, 1000), (1000, 1), (3, 2)] {
            let rect = op.rect(&draw(0), width, height);
            assert!(rect.width >= 1 && rect.height >= 1, "{rect:?}");
            assert!(rect.left + rect.width <= width && rect.top + rect.height <= height, "{rect:?}");
        }
    }
}
