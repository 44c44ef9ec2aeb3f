//! Erases a random rectangle: torchvision's `RandomErasing`, on tensors and on pixels.

use feedline_codec::Rect;
use feedline_order::Draw;
use serde::{Deserialize, Serialize};
use serde_inline_default::serde_inline_default;

use super::pixels::pack;
use super::{Facts, On, Op, OpError};
use crate::batch::{Axes, FieldError, FieldTypes, Kind, Sample, Tensor, Value};
use crate::dtype::Dtype;
use crate::memory::Workspace;
use crate::op::CheckError;

const ATTEMPTS: u32 = 10;
/// The first draw of the noise. The rectangle uses the draws before.
const FIRST_NOISE: u32 = 1000;
/// The fields it accepts.
const NEEDS: &str = "pixels, or a float32 or uint8 tensor with 1 or 3 channels";

/// Erases at random.
#[serde_inline_default]
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RandomErasing {
    #[serde_inline_default(0.5)]
    p: f64,
    #[serde_inline_default([0.02, 0.33])]
    scale: [f64; 2],
    #[serde_inline_default([0.3, 3.3])]
    ratio: [f64; 2],
    #[serde(default)]
    value: Filling,
    #[serde(default)]
    on: On,
}

/// The content of the rectangle.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged, expecting = "value is a number, one number per channel, or \"random\"")]
enum Filling {
    One(f64),
    PerChannel(Vec<f64>),
    /// `"random"`: normal noise, per element.
    Named(String),
}

impl Default for Filling {
    fn default() -> Self {
        Self::One(0.0)
    }
}

impl RandomErasing {
    fn rect(&self, draw: &Draw, width: u32, height: u32) -> Option<Rect> {
        if !draw.happens(0, self.p) {
            return None;
        }
        let (log_low, log_high) = (libm::log(self.ratio[0]), libm::log(self.ratio[1]));
        let (full_width, full_height) = (f64::from(width), f64::from(height));
        (0..ATTEMPTS).find_map(|attempt| {
            // Draw 0 decides whether to erase. Each attempt has four draws of its own, so a rejected attempt does not shift
            // later draws.
            let first = 1 + attempt * 4;
            let area = full_width * full_height * draw.between(first, self.scale[0], self.scale[1]);
            // The aspect ratio is uniform on a logarithmic scale. `libm` gives the same bits on every machine.
            let aspect = libm::exp(draw.between(first + 1, log_low, log_high));
            let erased_height = (area * aspect).sqrt().round_ties_even();
            let erased_width = (area / aspect).sqrt().round_ties_even();
            // Strictly smaller, as in torchvision: a whole picture is never erased.
            (erased_height < full_height && erased_width < full_width).then(|| {
                let (erased_width, erased_height) = (erased_width as u32, erased_height as u32);
                Rect {
                    top: draw.below(first + 2, u64::from(height - erased_height) + 1) as u32,
                    left: draw.below(first + 3, u64::from(width - erased_width) + 1) as u32,
                    width: erased_width,
                    height: erased_height,
                }
            })
        })
    }

    fn value(&self, draw: &Draw, channel: usize, number: u32) -> f32 {
        match &self.value {
            Filling::One(value) => *value as f32,
            Filling::PerChannel(values) => values[channel.min(values.len() - 1)] as f32,
            Filling::Named(_) => normal(draw, FIRST_NOISE + number),
        }
    }
}

/// A standard normal number by the Box-Muller transform of one draw.
fn normal(draw: &Draw, number: u32) -> f32 {
    let bits = draw.bits(number);
    // From the open end: above 0, since its logarithm is taken.
    let radius = (f64::from((bits >> 32) as u32) + 1.0) / 4_294_967_296.0;
    let angle = f64::from(bits as u32) / 4_294_967_296.0 * std::f64::consts::TAU;
    (libm::sqrt(-2.0 * libm::log(radius)) * libm::cos(angle)) as f32
}

/// The strides of a picture, in elements.
struct Strides {
    height: usize,
    width: usize,
    channels: usize,
    row: usize,
    column: usize,
    channel: usize,
}

impl Strides {
    fn of_pixels(height: usize, width: usize, channels: usize) -> Self {
        Self { height, width, channels, row: width * channels, column: channels, channel: 1 }
    }

    fn of_tensor(tensor: &Tensor<'_>) -> Option<Self> {
        match (tensor.channels()?, &tensor.shape[..]) {
            ((Axes::Hwc, channels), &[height, width, _]) => Some(Self::of_pixels(height, width, channels)),
            ((_, channels), &[_, height, width]) => {
                Some(Self { height, width, channels, row: width, column: 1, channel: width * height })
            }
            _ => None,
        }
    }
}

impl Op for RandomErasing {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        CheckError::probability(self.p)?;
        match &self.value {
            Filling::Named(name) if name != "random" => {
                let problem = format!("value is {name:?}; it must be a number, one number per channel, or \"random\"");
                return Err(CheckError::Parameter(problem));
            }
            Filling::PerChannel(values) if ![1, 3].contains(&values.len()) => {
                let problem = format!("value has {} numbers; pictures have 1 or 3 channels", values.len());
                return Err(CheckError::Parameter(problem));
            }
            _ => {}
        }
        CheckError::range("scale", self.scale)?;
        CheckError::range("ratio", self.ratio)?;
        self.on.change(types, NEEDS, |kind| {
            let fits = match kind {
                Kind::Pixels(pixels) => !pixels.is_mask && !pixels.is_deep,
                Kind::Tensor { dtype: Dtype::U8 | Dtype::F32, shape, axes } => axes.channels(shape).is_some(),
                _ => false,
            };
            fits.then(|| kind.clone())
        })
    }

    fn fires(&self, draw: &Draw) -> bool {
        draw.happens(0, self.p)
    }

    fn is_random(&self) -> bool {
        true
    }

    fn resolve(&self, draw: &Draw, facts: Facts) -> Vec<(&'static str, f64)> {
        match self.rect(draw, facts.width, facts.height) {
            None => Vec::new(),
            Some(rect) => vec![
                ("left", f64::from(rect.left)),
                ("top", f64::from(rect.top)),
                ("width", f64::from(rect.width)),
                ("height", f64::from(rect.height)),
            ],
        }
    }

    fn apply(&self, sample: &mut Sample<'_>, draw: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        if !draw.happens(0, self.p) {
            return Ok(());
        }
        for name in self.on.names() {
            let mut value = match sample.take(name)? {
                // Pixels may be a view of a larger picture, so they get memory of their own before they change.
                Value::Pixels(pixels) => Value::Pixels(pack(sample, name, pixels, workspace)?),
                other => other,
            };
            let (memory, dtype, strides) = match &mut value {
                Value::Pixels(pixels) => {
                    let strides =
                        Strides::of_pixels(pixels.height as usize, pixels.width as usize, pixels.channels.into());
                    (&mut pixels.memory, Dtype::U8, strides)
                }
                Value::Tensor(tensor) => {
                    let strides = Strides::of_tensor(tensor);
                    let Some(strides) = strides.filter(|_| [Dtype::U8, Dtype::F32].contains(&tensor.dtype)) else {
                        let has = format!("a {} tensor {:?}", tensor.dtype.name(), tensor.shape);
                        return Err(FieldError::Unfit { name: name.to_owned(), has, needs: NEEDS }.into());
                    };
                    (&mut tensor.memory, tensor.dtype, strides)
                }
                other => {
                    let (has, needs) = (other.describe(), "pixels");
                    return Err(FieldError::Kind { name: name.to_owned(), has, needs }.into());
                }
            };
            if let Some(rect) = self.rect(draw, strides.width as u32, strides.height as u32) {
                self.erase(memory, dtype, &strides, rect, draw);
            }
            sample.put(name, value);
        }
        Ok(())
    }
}

impl RandomErasing {
    fn erase(&self, memory: &mut [u8], dtype: Dtype, strides: &Strides, rect: Rect, draw: &Draw) {
        let mut number = 0;
        for channel in 0..strides.channels {
            for y in rect.top as usize..(rect.top + rect.height) as usize {
                for x in rect.left as usize..(rect.left + rect.width) as usize {
                    let element = channel * strides.channel + y * strides.row + x * strides.column;
                    let value = self.value(draw, channel, number);
                    // Counted by channel, row and column in every layout, so CHW and HWC get the same noise.
                    number += 1;
                    match dtype {
                        Dtype::F32 => memory[element * 4..][..4].copy_from_slice(&value.to_ne_bytes()),
                        _ => memory[element] = value.clamp(0.0, 255.0) as u8,
                    }
                }
            }
        }
    }
}
