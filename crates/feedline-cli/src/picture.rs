//! Converts an array of a batch back to a picture.
//!
//! In: an array, and the mean and deviation of its normalisation, if known. Out: 8-bit RGB.

use feedline_data::dtype::Dtype;
use half::{bf16, f16};

/// An array of one sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array<'a> {
    /// Element type.
    pub dtype: Dtype,
    /// Sides, outermost first.
    pub shape: &'a [usize],
    /// The elements.
    pub bytes: &'a [u8],
}

/// The parameters of a normalisation, per channel or one for all channels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scale {
    /// The mean, which was subtracted.
    pub mean: Vec<f32>,
    /// The deviation, by which the difference was divided.
    pub std: Vec<f32>,
}

/// A picture in RGB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Packed RGB.
    pub pixels: Vec<u8>,
}

/// The layout of an array that is a picture.
#[derive(Clone, Copy)]
struct Axes {
    height: usize,
    width: usize,
    channels: usize,
    is_planar: bool,
}

impl Array<'_> {
    /// Whether it has the shape of a picture.
    pub(crate) fn is_picture(&self) -> bool {
        self.axes().is_some()
    }

    fn axes(&self) -> Option<Axes> {
        let is_numeric = matches!(self.dtype, Dtype::U8 | Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64);
        if !is_numeric || self.bytes.is_empty() {
            return None;
        }
        let interleaved = match *self.shape {
            [height, width, channels @ (1 | 3)] => Some(Axes { height, width, channels, is_planar: false }),
            _ => None,
        };
        let planar = match *self.shape {
            [channels @ (1 | 3), height, width] => Some(Axes { height, width, channels, is_planar: true }),
            _ => None,
        };
        // If both layouts fit, bytes are interleaved pixels, and floats are planar as `Normalize` writes them.
        if self.dtype == Dtype::U8 { interleaved.or(planar) } else { planar.or(interleaved) }
    }

    /// The value of an integer scalar.
    pub(crate) fn as_integer(&self) -> Option<i64> {
        match (self.dtype, self.shape) {
            (Dtype::I64, []) => Some(i64::from_ne_bytes(self.bytes.try_into().ok()?)),
            (Dtype::I32, []) => Some(i32::from_ne_bytes(self.bytes.try_into().ok()?).into()),
            _ => None,
        }
    }

    /// The elements as floats.
    fn floats(&self) -> Vec<f32> {
        let bytes = self.bytes;
        match self.dtype {
            Dtype::F16 => bytes.as_chunks().0.iter().map(|b| f16::from_ne_bytes(*b).to_f32()).collect(),
            Dtype::BF16 => bytes.as_chunks().0.iter().map(|b| bf16::from_ne_bytes(*b).to_f32()).collect(),
            Dtype::F32 => bytes.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect(),
            Dtype::F64 => bytes.as_chunks().0.iter().map(|b| f64::from_ne_bytes(*b) as f32).collect(),
            _ => bytes.iter().map(|&byte| f32::from(byte) / 255.0).collect(),
        }
    }
}

impl Picture {
    /// The picture in an array. Floats are denormalised with `scale`. Without it, their range becomes 0 to 1.
    pub(crate) fn new(array: &Array<'_>, scale: Option<&Scale>) -> Option<Self> {
        let axes = array.axes()?;
        let values = array.floats();
        let to_unit = match scale {
            _ if array.dtype == Dtype::U8 => Scale { mean: vec![0.0], std: vec![1.0] },
            Some(scale) => scale.clone(),
            None => min_max_scale(&values),
        };
        let plane = axes.height * axes.width;
        let mut pixels = Vec::with_capacity(plane * 3);
        for pixel in 0..plane {
            for channel in 0..3 {
                // A grey picture has one channel, which is used for all three.
                let own = channel.min(axes.channels - 1);
                let place = if axes.is_planar { own * plane + pixel } else { pixel * axes.channels + own };
                let of = |list: &[f32]| list.get(own).or(list.first()).copied().unwrap_or_default();
                let value = values.get(place)? * of(&to_unit.std) + of(&to_unit.mean);
                // Rounded to the nearest value. The cast saturates, so values outside of 0 to 1 become black or white.
                pixels.push((value * 255.0 + 0.5) as u8);
            }
        }
        Some(Self { width: axes.width, height: axes.height, pixels })
    }
}

/// The scale that maps the minimum to 0 and the maximum to 1. Values that are within 0 to 1 already are not changed.
fn min_max_scale(values: &[f32]) -> Scale {
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let (min, max) = (finite().fold(f32::MAX, f32::min), finite().fold(f32::MIN, f32::max));
    if (min >= 0.0 && max <= 1.0) || min >= max {
        return Scale { mean: vec![0.0], std: vec![1.0] };
    }
    let factor = 1.0 / (max - min);
    Scale { mean: vec![-min * factor], std: vec![factor] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_as_they_are_in_either_layout() {
        let interleaved = Array { dtype: Dtype::U8, shape: &[1, 2, 3], bytes: &[1, 2, 3, 4, 5, 6] };
        let planar = Array { dtype: Dtype::U8, shape: &[3, 1, 2], bytes: &[1, 4, 2, 5, 3, 6] };
        let wanted = Picture { width: 2, height: 1, pixels: vec![1, 2, 3, 4, 5, 6] };
        assert_eq!(Picture::new(&interleaved, None).unwrap(), wanted);
        assert_eq!(Picture::new(&planar, None).unwrap(), wanted);
    }

    #[test]
    fn normalisation_is_undone() {
        let scale = Scale { mean: vec![0.5, 0.25, 0.0], std: vec![0.5, 0.25, 2.0] };
        let bytes: Vec<u8> = [-1.0f32, 1.0, 0.5].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let array = Array { dtype: Dtype::F32, shape: &[3, 1, 1], bytes: &bytes };
        assert_eq!(Picture::new(&array, Some(&scale)).unwrap().pixels, [0, 128, 255]);
    }

    #[test]
    fn unknown_floats_are_stretched_from_least_to_greatest() {
        let bytes: Vec<u8> =
            [-10.0f32, 0.0, 10.0, 10.0, 0.0, -10.0].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let array = Array { dtype: Dtype::F32, shape: &[2, 1, 3], bytes: &bytes };
        assert_eq!(Picture::new(&array, None).unwrap().pixels, [0, 128, 255, 255, 128, 0]);
    }

    #[test]
    fn labels_and_vectors_are_no_pictures() {
        for shape in [&[][..], &[7], &[2, 2, 2]] {
            assert!(!Array { dtype: Dtype::U8, shape, bytes: &[0; 8] }.is_picture());
        }
    }
}
