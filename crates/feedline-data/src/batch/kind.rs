//! The kind of a field, known before any data is read. Plans are checked with kinds.
//!
//! A side that depends on the sample, such as a picture's height before a crop, is `None`. A kind without such sides is *fixed*: in
//! a batch it is one region of a slab, written in place.

use std::fmt;
use std::sync::Arc;

use super::volume::volume_shape;
use crate::dtype::Dtype;

/// The kind of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Encoded bytes, such as a JPEG file.
    Bytes,
    /// A name or other text.
    Text,
    /// The result of a user's function, known only at run time.
    Any,
    /// A picture or mask, height x width x channels.
    Pixels(PixelKind),
    /// A volume, channels x depth x height x width.
    Volume(VolumeKind),
    /// An array. A shape without sides is a scalar.
    Tensor {
        /// Element type.
        dtype: Dtype,
        /// Sides, outermost first.
        shape: Vec<Option<usize>>,
        /// The meaning of the sides.
        axes: Axes,
    },
}

/// The meaning of an array's sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Axes {
    /// Unknown. A picture is recognised by a side of 1 or 3.
    #[default]
    Unknown,
    /// Channels, rows, columns.
    Chw,
    /// Rows, columns, channels.
    Hwc,
}

impl Axes {
    /// If the array is a picture with 1 or 3 channels: its axes and the number of channels.
    pub(crate) fn channels(self, shape: &[Option<usize>]) -> Option<(Self, usize)> {
        match (*shape.first_chunk::<3>()?, shape.len()) {
            // For unknown axes, channels first is tried first, as torch lays pictures out.
            ([Some(channels @ (1 | 3)), _, _], 3) if self != Self::Hwc => Some((Self::Chw, channels)),
            ([_, _, Some(channels @ (1 | 3))], 3) if self != Self::Chw => Some((Self::Hwc, channels)),
            _ => None,
        }
    }
}

/// What is known of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PixelKind {
    /// 3 for RGB, 1 for grey and masks.
    pub channels: u8,
    /// Rows, once an op has fixed them.
    pub height: Option<u32>,
    /// Columns, once an op has fixed them.
    pub width: Option<u32>,
    /// Whether values are labels. Labels are resized by nearest neighbour and never blended.
    pub is_mask: bool,
    /// Whether channels have 16 bits, not 8.
    pub is_deep: bool,
}

impl PixelKind {
    /// The element type.
    pub fn dtype(&self) -> Dtype {
        if self.is_deep { Dtype::U16 } else { Dtype::U8 }
    }
}

/// What is known of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeKind {
    /// Element type.
    pub dtype: Dtype,
    /// Number of channels.
    pub channels: usize,
    /// Depth, height and width, once an op has fixed them.
    pub sides: Option<[usize; 3]>,
    /// Whether values are labels, which are never blended.
    pub is_label: bool,
}

impl Kind {
    /// A tensor of known shape.
    pub fn tensor(dtype: Dtype, shape: &[usize]) -> Self {
        Self::Tensor { dtype, shape: shape.iter().copied().map(Some).collect(), axes: Axes::Unknown }
    }

    /// An array of known shape. Bytes of height x width x (1 or 3) count as a picture, so that image ops apply.
    pub fn of_array(dtype: Dtype, shape: &[usize]) -> Self {
        match (dtype, shape) {
            (Dtype::U8, &[height, width, channels @ (1 | 3)]) => Self::Pixels(PixelKind {
                channels: channels as u8,
                height: Some(height as u32),
                width: Some(width as u32),
                is_mask: false,
                is_deep: false,
            }),
            _ => Self::tensor(dtype, shape),
        }
    }

    /// Element type and shape of the delivered array, if they are the same for every sample.
    pub fn fixed(&self) -> Option<(Dtype, Vec<usize>)> {
        match self {
            Self::Bytes | Self::Text | Self::Any => None,
            Self::Pixels(pixels) => {
                let sides =
                    pixel_shape(pixels.height? as usize, pixels.width? as usize, pixels.channels, pixels.is_mask);
                // Without a known height and width there is no fixed shape.
                Some((pixels.dtype(), sides))
            }
            Self::Volume(volume) => Some((volume.dtype, volume_shape(volume.channels, volume.sides?).to_vec())),
            Self::Tensor { dtype, shape, .. } => Some((*dtype, shape.iter().copied().collect::<Option<Vec<_>>>()?)),
        }
    }
}

/// The delivered shape of pixels. A mask has no channel axis.
pub(crate) fn pixel_shape(height: usize, width: usize, channels: u8, is_mask: bool) -> Vec<usize> {
    if is_mask { vec![height, width] } else { vec![height, width, usize::from(channels)] }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes => f.write_str("encoded bytes"),
            Self::Text => f.write_str("text"),
            Self::Any => f.write_str("the result of a function"),
            Self::Pixels(pixels) if pixels.is_mask => f.write_str("a mask"),
            Self::Pixels(pixels) if pixels.is_deep => f.write_str("pixels of 16 bits"),
            Self::Pixels(_) => f.write_str("pixels"),
            Self::Volume(volume) if volume.is_label => write!(f, "a label volume of {}", volume.dtype.name()),
            Self::Volume(volume) => write!(f, "a volume of {}", volume.dtype.name()),
            Self::Tensor { dtype, shape, .. } => {
                write!(f, "a {} tensor [", dtype.name())?;
                for (number, side) in shape.iter().enumerate() {
                    let comma = if number == 0 { "" } else { ", " };
                    match side {
                        Some(side) => write!(f, "{comma}{side}")?,
                        None => write!(f, "{comma}?")?,
                    }
                }
                f.write_str("]")
            }
        }
    }
}

/// The named fields of a sample and their kinds, in a fixed order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldTypes(Vec<(Arc<str>, Kind)>);

impl FieldTypes {
    /// No fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// The kind of a field.
    pub(crate) fn get(&self, name: &str) -> Option<&Kind> {
        self.0.iter().find(|(field, _)| &**field == name).map(|(_, kind)| kind)
    }

    /// Sets the kind of a field. Adds the field if it is new.
    pub fn set(&mut self, name: &str, kind: Kind) {
        // Samples have few fields, so a linear search is faster than a map, and it keeps their order.
        match self.0.iter_mut().find(|(field, _)| &**field == name) {
            Some((_, old)) => *old = kind,
            None => self.0.push((name.into(), kind)),
        }
    }

    /// Removes a field.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(field, _)| &**field != name);
    }

    /// All fields in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Kind)> {
        self.0.iter().map(|(name, kind)| (name, kind))
    }

    /// The names, quoted and separated by commas. For messages.
    pub fn names(&self) -> String {
        self.0.iter().map(|(name, _)| format!("{name:?}")).collect::<Vec<_>>().join(", ")
    }
}
