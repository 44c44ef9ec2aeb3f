//! Normalises each channel: torchvision's `Normalize`. On pixels it implies [`super::to_tensor`].
//!
//! The arithmetic is `v * (1 / std) + (-mean / std)` in float32, as a product and a sum, never fused. So both ops in one step give
//! the bytes of the two ops one after the other (law 8).

use feedline_codec::Affine;
use feedline_order::Draw;
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use serde_inline_default::serde_inline_default;

use super::to_tensor::{Layout, check_dtype, convert};
use super::{On, Op, OpError};
use crate::batch::{Axes, FieldError, FieldTypes, Kind, Sample, Tensor, Value};
use crate::dtype::Dtype;
use crate::memory::Workspace;
use crate::op::CheckError;

const FLOATS: [Dtype; 3] = [Dtype::F16, Dtype::BF16, Dtype::F32];

/// Normalises pictures and tensors.
#[serde_inline_default]
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Normalize {
    #[serde_inline_default(vec![0.485, 0.456, 0.406])]
    mean: Vec<f64>,
    #[serde_inline_default(vec![0.229, 0.224, 0.225])]
    std: Vec<f64>,
    /// The element type, if it converts pixels to a tensor.
    #[serde_inline_default(Dtype::F32)]
    dtype: Dtype,
    /// The layout, if it converts pixels to a tensor.
    #[serde(default)]
    layout: Layout,
    #[serde(default)]
    on: On,
}

impl Normalize {
    fn affine(&self) -> Affine {
        // A single mean applies to all channels.
        let at = |values: &[f64], channel: usize| values[channel.min(values.len() - 1)];
        Affine {
            scale: std::array::from_fn(|c| (1.0 / at(&self.std, c)) as f32),
            bias: std::array::from_fn(|c| (-at(&self.mean, c) / at(&self.std, c)) as f32),
        }
    }

    fn fits(&self, channels: usize) -> bool {
        self.mean.len() == channels || self.mean.len() == 1
    }

    fn check_channels(&self, channels: usize) -> Result<(), CheckError> {
        if self.fits(channels) {
            return Ok(());
        }
        Err(CheckError::Parameter(format!(
            "mean and std have {} channels, the picture has {channels}",
            self.mean.len()
        )))
    }
}

impl Op for Normalize {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        let problem = if self.mean.is_empty() || self.mean.len() != self.std.len() {
            Some(format!("mean has {} values and std {}; they need the same number", self.mean.len(), self.std.len()))
        } else if self.std.iter().any(|&std| std.is_nan() || std <= 0.0) {
            Some(format!("std is {:?}; each has to be above 0", self.std))
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(CheckError::Parameter(problem));
        }
        check_dtype(self.dtype, &FLOATS)?;
        for (field, kind) in self.on.kinds(types)? {
            match &kind {
                Kind::Pixels(pixels) if !pixels.is_mask => {
                    self.check_channels(pixels.channels.into())?;
                    types.set(&field, self.layout.kind(self.dtype, *pixels));
                }
                Kind::Tensor { dtype, shape, axes } if FLOATS.contains(dtype) => {
                    let Some((_, channels)) = axes.channels(shape) else {
                        let needs = "a tensor with 1 or 3 channels";
                        return Err(CheckError::Needs { needs, field, has: kind });
                    };
                    self.check_channels(channels)?;
                }
                Kind::Any => {}
                _ => return Err(CheckError::Needs { needs: "pixels", field, has: kind }),
            }
        }
        Ok(())
    }

    fn apply(&self, sample: &mut Sample<'_>, _: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        let affine = self.affine();
        for name in self.on.names() {
            if let Value::Pixels(pixels) = sample.get(name)? {
                if !self.fits(pixels.channels.into()) {
                    let has = format!("pixels of {} channels", pixels.channels);
                    return Err(
                        FieldError::Unfit { name: name.to_owned(), has, needs: "as many as mean and std" }.into()
                    );
                }
                // Conversion and normalisation in one pass over the pixels.
                convert(sample, name, (self.dtype, self.layout), Some(&affine), workspace)?;
            } else {
                let mut tensor = sample.take_tensor(name)?;
                let is_float = FLOATS.contains(&tensor.dtype);
                let Some((axes, channels)) = tensor.channels().filter(|(_, channels)| is_float && self.fits(*channels))
                else {
                    let has = format!("a {} tensor {:?}", tensor.dtype.name(), tensor.shape);
                    let needs = "pixels, or a float tensor with the channels of mean and std";
                    return Err(FieldError::Unfit { name: name.to_owned(), has, needs }.into());
                };
                scale_in_place(&mut tensor, axes, channels, &affine);
                sample.put(name, Value::Tensor(tensor));
            }
        }
        Ok(())
    }
}

fn scale_in_place(tensor: &mut Tensor<'_>, axes: Axes, channels: usize, affine: &Affine) {
    let elements = tensor.shape.iter().product::<usize>();
    // Number of consecutive elements of one channel: a whole plane, or a single element if channels come last.
    let run = match axes {
        Axes::Hwc => 1,
        Axes::Chw | Axes::Unknown => (elements / channels).max(1),
    };
    match tensor.dtype {
        Dtype::F32 => scale_runs(&mut tensor.memory, run, channels, affine, f32::from_ne_bytes, f32::to_ne_bytes),
        Dtype::F16 => scale_runs(
            &mut tensor.memory,
            run,
            channels,
            affine,
            |bytes| f16::from_ne_bytes(bytes).to_f32(),
            |value| f16::from_f32(value).to_ne_bytes(),
        ),
        Dtype::BF16 => scale_runs(
            &mut tensor.memory,
            run,
            channels,
            affine,
            |bytes| bf16::from_ne_bytes(bytes).to_f32(),
            |value| bf16::from_f32(value).to_ne_bytes(),
        ),
        _ => unreachable!("the caller has checked the element type"),
    }
}

/// Scales elements of `N` bytes. Each `run` elements belong to one channel, and the channels take turns.
fn scale_runs<const N: usize>(
    memory: &mut [u8],
    run: usize,
    channels: usize,
    affine: &Affine,
    read: impl Fn([u8; N]) -> f32,
    write: impl Fn(f32) -> [u8; N],
) {
    for (number, elements) in memory.as_chunks_mut::<N>().0.chunks_mut(run).enumerate() {
        let channel = number % channels;
        // Constant for a whole run, so that the compiler uses SIMD.
        let (scale, bias) = (affine.scale[channel], affine.bias[channel]);
        for bytes in elements {
            *bytes = write(read(*bytes) * scale + bias);
        }
    }
}
