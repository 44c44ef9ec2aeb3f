//! Shared code of the geometric ops: applies one decision to several pictures of one size.

use feedline_codec::{Filter, Rect, Resizing};
use serde::{Deserialize, Serialize};

use super::{Facts, On, OpError};
use crate::batch::kind::pixel_shape;
use crate::batch::{Excerpt, Pixels, Sample, Value};
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

    /// How a picture is resized. It reads at least the pixels that a mask needs.
    pub(super) fn resizing(self, from: (u32, u32), to: (u32, u32)) -> Resizing {
        Resizing { from, to, filter: self.filter(false) }
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
        let mut pixels = sample.take_any_pixels(name)?;
        pixels.crop(rect);
        sample.put(name, Value::Pixels(pixels));
    }
    Ok(())
}

/// Resizes every field of `on`. `need` returns the part of the result that later ops read. Only that part is computed.
pub(super) fn resize(
    sample: &mut Sample<'_>,
    on: &On,
    (height, width): (u32, u32),
    interpolation: Interpolation,
    need: impl Fn(&str, Facts) -> Option<Rect>,
    workspace: &mut Workspace,
) -> Result<(), OpError> {
    for name in on.names() {
        let source = sample.take_pixels(name)?;
        // Resampling to the same size would change nothing.
        if (source.height, source.width) == (height, width) {
            sample.put(name, Value::Pixels(source));
            continue;
        }
        let (channels, is_mask) = (source.channels, source.is_mask);
        let need = need(name, Facts { width, height });
        let part = need.unwrap_or_else(|| Rect::whole(width, height));
        let shape = pixel_shape(part.height as usize, part.width as usize, channels, is_mask);
        let mut memory = sample.output(name, Dtype::U8, &shape, workspace)?;
        let (from, to) = ((source.width, source.height), (width, height));
        let resizing = Resizing { filter: interpolation.filter(is_mask), ..interpolation.resizing(from, to) };
        let (held, view) = source.held();
        workspace.resampler.resize_part(view, held, resizing, part, &mut memory)?;
        let resized = match need {
            None => Pixels::packed(memory, width, height, channels, is_mask),
            Some(rect) => Pixels::part(memory, to, Excerpt { rect, divisor: 1 }, channels, is_mask),
        };
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
    let mut memory = sample.output(name, source.dtype(), &source.shape(), workspace)?;
    source.copy_to(&mut memory);
    let packed = source.packed_like(memory, source.width, source.height);
    sample.give_back(name, source.memory, workspace);
    Ok(packed)
}
