//! Shared code of the geometric ops: applies one decision to several pictures of one size.

use feedline_codec::{Filter, Rect};
use serde::{Deserialize, Serialize};

use super::{On, OpError};
use crate::batch::kind::pixel_shape;
use crate::batch::{Pixels, Sample, Value};
use crate::dtype::Dtype;
use crate::memory::Workspace;

/// The interpolation method. Masks always use the nearest pixel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Interpolation {
    Nearest,
    #[default]
    Bilinear,
    Bicubic,
}

impl Interpolation {
    fn filter(self, is_mask: bool) -> Filter {
        match self {
            // A mean of two labels would be a third label.
            _ if is_mask => Filter::Nearest,
            Self::Nearest => Filter::Nearest,
            Self::Bilinear => Filter::Bilinear,
            Self::Bicubic => Filter::Bicubic,
        }
    }
}

/// The width and height of all fields of `on`.
pub(super) fn common_size(sample: &mut Sample<'_>, on: &On) -> Result<(u32, u32), OpError> {
    let mut first: Option<(&str, u32, u32)> = None;
    for name in on.names() {
        let (width, height) = match sample.get(name)? {
            Value::Pixels(pixels) => (pixels.width, pixels.height),
            other => {
                let has = other.describe();
                return Err(crate::batch::FieldError::Kind { name: name.to_owned(), has, needs: "pixels" }.into());
            }
        };
        // One draw applies to all fields, for example to a picture and its mask, so all must have one size.
        match first {
            None => first = Some((name, width, height)),
            Some((_, w, h)) if (w, h) == (width, height) => {}
            Some((other, w, h)) => {
                return Err(OpError::SizesDiffer(other.to_owned(), name.to_owned(), w, h, width, height));
            }
        }
    }
    let (_, width, height) = first.ok_or(OpError::NoPixels)?;
    if width == 0 || height == 0 { Err(OpError::NoPixels) } else { Ok((width, height)) }
}

/// Crops every field of `on`. No bytes are moved.
pub(super) fn crop(sample: &mut Sample<'_>, on: &On, rect: Rect) -> Result<(), OpError> {
    for name in on.names() {
        let mut pixels = sample.take_pixels(name)?;
        pixels.crop(rect);
        sample.put(name, Value::Pixels(pixels));
    }
    Ok(())
}

/// Resizes every field of `on`.
pub(super) fn resize(
    sample: &mut Sample<'_>,
    on: &On,
    (height, width): (u32, u32),
    interpolation: Interpolation,
    workspace: &mut Workspace,
) -> Result<(), OpError> {
    for name in on.names() {
        let source = sample.take_pixels(name)?;
        // Resampling to the same size would change nothing.
        if (source.height, source.width) == (height, width) {
            sample.put(name, Value::Pixels(source));
            continue;
        }
        let shape = pixel_shape(height as usize, width as usize, source.channels, source.is_mask);
        let mut memory = sample.output(name, Dtype::U8, &shape, workspace)?;
        let filter = interpolation.filter(source.is_mask);
        workspace.resampler.resize(source.view(), &mut memory, width, height, filter)?;
        let resized = Pixels::packed(memory, width, height, source.channels, source.is_mask);
        sample.give_back(name, source.memory, workspace);
        sample.put(name, Value::Pixels(resized));
    }
    Ok(())
}

/// The same picture in packed memory of its own, where it can be changed in place.
pub(super) fn pack<'s>(
    sample: &mut Sample<'s>,
    name: &str,
    source: Pixels<'s>,
    workspace: &mut Workspace,
) -> Result<Pixels<'s>, OpError> {
    // A crop is a view of a larger picture, whose other bytes must not change.
    if source.is_packed() {
        return Ok(source);
    }
    let mut memory = sample.output(name, Dtype::U8, &source.shape(), workspace)?;
    source.copy_to(&mut memory);
    let packed = Pixels::packed(memory, source.width, source.height, source.channels, source.is_mask);
    sample.give_back(name, source.memory, workspace);
    Ok(packed)
}
