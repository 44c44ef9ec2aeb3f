//! Converts pixels to a tensor: floats in `[0, 1]`, or the bytes themselves.

use feedline_codec::{self as kernels, Affine, DeepNumbers, Simd, View};
use feedline_order::Draw;
use serde::{Deserialize, Serialize};
use serde_inline_default::serde_inline_default;

use super::{On, Op, OpError};
use crate::batch::{Axes, FieldTypes, Kind, PixelKind, Pixels, Sample, Tensor, Value};
use crate::dtype::Dtype;
use crate::memory::Workspace;
use crate::op::CheckError;

/// Converts pictures to tensors.
#[serde_inline_default]
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToTensor {
    #[serde_inline_default(Dtype::F32)]
    dtype: Dtype,
    #[serde(default)]
    layout: Layout,
    #[serde(default)]
    on: On,
}

/// The order of a picture's axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) enum Layout {
    /// Channels, rows, columns.
    #[default]
    #[serde(rename = "CHW")]
    Chw,
    /// Rows, columns, channels. Decoders produce this, so nothing is transposed.
    #[serde(rename = "HWC")]
    Hwc,
}

impl Layout {
    /// The shape of a picture in this layout.
    pub(super) fn shape(self, height: usize, width: usize, channels: u8) -> Vec<usize> {
        match self {
            Self::Chw => vec![usize::from(channels), height, width],
            Self::Hwc => vec![height, width, usize::from(channels)],
        }
    }

    /// The kind of a picture in this layout.
    pub(super) fn kind(self, dtype: Dtype, pixels: PixelKind) -> Kind {
        let (height, width) = (pixels.height.map(|h| h as usize), pixels.width.map(|w| w as usize));
        let channels = Some(usize::from(pixels.channels));
        let shape = match self {
            Self::Chw => vec![channels, height, width],
            Self::Hwc => vec![height, width, channels],
        };
        Kind::Tensor { dtype, shape, axes: self.axes() }
    }

    /// The axes of a tensor in this layout.
    fn axes(self) -> Axes {
        match self {
            Self::Chw => Axes::Chw,
            Self::Hwc => Axes::Hwc,
        }
    }
}

/// Rejects element types that pictures cannot be converted to.
pub(super) fn check_dtype(dtype: Dtype, allowed: &[Dtype]) -> Result<(), CheckError> {
    if allowed.contains(&dtype) {
        return Ok(());
    }
    let names: Vec<&str> = allowed.iter().map(|dtype| dtype.name()).collect();
    Err(CheckError::Parameter(format!("dtype is {}; it must be one of {}", dtype.name(), names.join(", "))))
}

/// Replaces a picture by its tensor. `affine` is applied after the conversion to `[0, 1]`.
pub(super) fn convert(
    sample: &mut Sample<'_>,
    name: &str,
    (dtype, layout): (Dtype, Layout),
    affine: Option<&Affine>,
    workspace: &mut Workspace,
) -> Result<(), OpError> {
    let source = sample.take_any_pixels(name)?;
    let shape = layout.shape(source.height as usize, source.width as usize, source.channels);
    // The slot of the batch itself, if this is the last op on the field.
    let mut memory = sample.output(name, dtype, &shape, workspace)?;
    if source.is_deep {
        write_deep(&source, (dtype, layout), affine, &mut memory);
    } else {
        write(source.view(), (dtype, layout), affine, workspace.simd, &mut memory);
    }
    sample.give_back(name, source.memory, workspace);
    sample.put(name, Value::Tensor(Tensor::new(dtype, shape, memory).with_axes(layout.axes())));
    Ok(())
}

fn write(view: View<'_>, form: (Dtype, Layout), affine: Option<&Affine>, simd: Simd, target: &mut [u8]) {
    match form {
        (Dtype::F32, Layout::Chw) => kernels::planes_f32(view, affine, simd, target),
        (Dtype::F16, Layout::Chw) => kernels::planes_f16(view, affine, simd, target),
        (Dtype::BF16, Layout::Chw) => kernels::planes_bf16(view, affine, simd, target),
        (Dtype::F32, Layout::Hwc) => kernels::interleaved_f32(view, affine, simd, target),
        (Dtype::F16, Layout::Hwc) => kernels::interleaved_f16(view, affine, simd, target),
        (Dtype::BF16, Layout::Hwc) => kernels::interleaved_bf16(view, affine, simd, target),
        (Dtype::U8, Layout::Chw) => kernels::planes_u8(view, simd, target),
        (Dtype::U8, Layout::Hwc) => {
            // The picture may be a crop inside a larger one, so its rows are copied one by one.
            let row = view.width as usize * usize::from(view.channels);
            for (target, source) in target.chunks_exact_mut(row.max(1)).zip(view.pixels.chunks(view.stride.max(1))) {
                target.copy_from_slice(&source[..row]);
            }
        }
        _ => unreachable!("check() allows no other element type"),
    }
}

fn write_deep(source: &Pixels<'_>, (dtype, layout): (Dtype, Layout), affine: Option<&Affine>, target: &mut [u8]) {
    let numbers = match dtype {
        Dtype::F32 => DeepNumbers::F32,
        Dtype::F16 => DeepNumbers::F16,
        Dtype::BF16 => DeepNumbers::Bf16,
        _ => unreachable!("check() allows no other element type"),
    };
    let form = (numbers, layout == Layout::Chw);
    kernels::numbers_of_16_bits(source.rows(), source.channels.into(), affine, form, target);
}

impl Op for ToTensor {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        check_dtype(self.dtype, &[Dtype::U8, Dtype::F16, Dtype::BF16, Dtype::F32])?;
        self.on.change(types, "pixels", |kind| match kind {
            // Bytes of 16 bits would lose half of them.
            Kind::Pixels(pixels) if pixels.is_deep && self.dtype == Dtype::U8 => None,
            Kind::Pixels(pixels) => Some(self.layout.kind(self.dtype, *pixels)),
            _ => None,
        })
    }

    fn apply(&self, sample: &mut Sample<'_>, _: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        for name in self.on.names() {
            convert(sample, name, (self.dtype, self.layout), None, workspace)?;
        }
        Ok(())
    }
}
