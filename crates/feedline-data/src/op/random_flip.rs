//! Mirrors pictures, as torchvision's `RandomHorizontalFlip` and `RandomVerticalFlip`.

use feedline_codec::{flip_horizontal, flip_vertical};
use feedline_order::Draw;
use serde::{Deserialize, Serialize};
use serde_inline_default::serde_inline_default;

use super::pixels::pack;
use super::{Facts, On, Op, OpError};
use crate::batch::{FieldTypes, Sample, Value};
use crate::memory::Workspace;
use crate::op::CheckError;

macro_rules! random_flip {
    ($(#[$doc:meta])* $name:ident, $flip:path) => {
        $(#[$doc])*
        #[serde_inline_default]
        #[derive(Clone, Debug, Deserialize, Serialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            #[serde_inline_default(0.5)]
            p: f64,
            #[serde(default)]
            on: On,
        }

        impl Op for $name {
            fn on(&self) -> &On {
                &self.on
            }

            fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
                CheckError::probability(self.p)?;
                self.on.change_any_pixels(types, |kind| kind)
            }

            fn is_random(&self) -> bool {
                // With p = 0 or 1 the op treats all samples alike, so its result can be cached.
                self.p > 0.0 && self.p < 1.0
            }

            fn fires(&self, draw: &Draw) -> bool {
                draw.happens(0, self.p)
            }

            fn resolve(&self, draw: &Draw, _: Facts) -> Vec<(&'static str, f64)> {
                vec![("flip", f64::from(u8::from(draw.happens(0, self.p))))]
            }

            fn apply(&self, sample: &mut Sample<'_>, draw: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
                if draw.happens(0, self.p) {
                    for name in self.on.names() {
                        let pixels = sample.take_any_pixels(name)?;
                        let mut pixels = pack(sample, name, pixels, workspace)?;
                        let pixel_bytes = pixels.pixel_bytes() as u8;
                        $flip(&mut pixels.memory, pixels.width, pixels.height, pixel_bytes);
                        sample.put(name, Value::Pixels(pixels));
                    }
                }
                Ok(())
            }
        }
    };
}

random_flip!(
    /// Mirrors left and right with probability `p`.
    RandomHorizontalFlip,
    flip_horizontal
);
random_flip!(
    /// Mirrors top and bottom with probability `p`.
    RandomVerticalFlip,
    flip_vertical
);
