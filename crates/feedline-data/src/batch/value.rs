//! The data of one field while a sample is prepared.
//!
//! A value owns its memory or borrows its slot. Ops cannot tell the difference.

use std::ops::{Deref, DerefMut};

use feedline_codec::{Rect, View};

use super::Encoded;
use super::kind::pixel_shape;
use super::{Axes, Volume};
use crate::dtype::{Dtype, array_bytes};
use crate::memory::Buffer;

impl From<Vec<u8>> for Memory<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Heap(bytes.into())
    }
}

/// Bytes on the heap, or in the slot in which they will be delivered.
#[derive(Debug)]
pub enum Memory<'s> {
    /// The sample's own memory.
    Heap(Buffer),
    /// The memory of the batch.
    Slot(&'s mut [u8]),
}

impl Deref for Memory<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Heap(buffer) => buffer.as_slice(),
            Self::Slot(slot) => slot,
        }
    }
}

impl DerefMut for Memory<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(buffer) => buffer.as_mut_slice(),
            Self::Slot(slot) => slot,
        }
    }
}

/// The part of a picture that is in memory, for an op that reads only that part.
#[derive(Clone, Copy, Debug)]
pub struct Excerpt {
    /// The part, in pixels as they are in memory.
    pub rect: Rect,
    /// Picture pixels per pixel in memory, along a side.
    pub divisor: u32,
}

/// A picture. It may be a rectangle inside a larger one, until an op has to change bytes.
#[derive(Debug)]
pub struct Pixels<'s> {
    /// The bytes of the larger picture.
    pub memory: Memory<'s>,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// 3 for RGB, 1 for grey and masks.
    pub channels: u8,
    /// Whether values are labels.
    pub is_mask: bool,
    /// The start of the rectangle.
    pub offset: usize,
    /// Bytes from one row to the next.
    pub stride: usize,
    /// Set if only a part of the picture is in memory.
    pub excerpt: Option<Excerpt>,
    /// Whether channels have 16 bits, not 8, in native byte order. Only ops that ask for any pixels get such a picture.
    pub is_deep: bool,
}

impl<'s> Pixels<'s> {
    /// A picture that fills its memory.
    pub fn packed(memory: Memory<'s>, width: u32, height: u32, channels: u8, is_mask: bool) -> Self {
        let stride = width as usize * usize::from(channels);
        assert_eq!(memory.len(), stride * height as usize, "memory of a packed picture has its size");
        Self { memory, width, height, channels, is_mask, offset: 0, stride, excerpt: None, is_deep: false }
    }

    /// A picture of 16 bits a channel. With an excerpt, `memory` holds only this part.
    pub fn deep(memory: Memory<'s>, (width, height): (u32, u32), excerpt: Option<Excerpt>, channels: u8) -> Self {
        let (columns, rows) = excerpt.map_or((width, height), |excerpt| (excerpt.rect.width, excerpt.rect.height));
        let stride = columns as usize * usize::from(channels) * 2;
        assert_eq!(memory.len(), stride * rows as usize, "memory of a packed picture has its size");
        Self { memory, width, height, channels, is_mask: false, offset: 0, stride, excerpt, is_deep: true }
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        if self.is_deep { Dtype::U16 } else { Dtype::U8 }
    }

    /// Bytes of one pixel.
    pub(crate) fn pixel_bytes(&self) -> usize {
        usize::from(self.channels) * self.dtype().bytes()
    }

    /// A picture of which `memory` holds only a part.
    pub fn part(
        memory: Memory<'s>,
        (width, height): (u32, u32),
        excerpt: Excerpt,
        channels: u8,
        is_mask: bool,
    ) -> Self {
        // The memory has the size of the part. Width and height stay those of the whole picture, so that a crop can address it.
        let part = Self::packed(memory, excerpt.rect.width, excerpt.rect.height, channels, is_mask);
        Self { width, height, excerpt: Some(excerpt), ..part }
    }

    /// A picture of the same format that fills its memory.
    pub(crate) fn packed_like<'t>(&self, memory: Memory<'t>, width: u32, height: u32) -> Pixels<'t> {
        if self.is_deep {
            Pixels::deep(memory, (width, height), None, self.channels)
        } else {
            Pixels::packed(memory, width, height, self.channels, self.is_mask)
        }
    }

    /// Whether rows follow each other without gaps.
    pub(crate) fn is_packed(&self) -> bool {
        // An excerpt has fewer bytes than its sides say.
        self.excerpt.is_none()
            && self.offset == 0
            && self.memory.len() == self.packed_bytes()
            && self.stride == self.row_bytes()
    }

    /// Bytes of one row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.width as usize * self.pixel_bytes()
    }

    /// Size without gaps in bytes.
    pub fn packed_bytes(&self) -> usize {
        self.row_bytes() * self.height as usize
    }

    /// The picture as an argument for codecs and kernels.
    pub(crate) fn view(&self) -> View<'_> {
        self.check_complete();
        assert!(!self.is_deep, "only an op that asks for any pixels gets those of 16 bits");
        View {
            pixels: &self.memory[self.offset..],
            width: self.width,
            height: self.height,
            channels: self.channels,
            stride: self.stride,
        }
    }

    /// The part of the picture that is in memory, and its pixels.
    pub(crate) fn held(&self) -> (Rect, View<'_>) {
        let Some(Excerpt { rect, divisor }) = self.excerpt else {
            return (Rect::whole(self.width, self.height), self.view());
        };
        assert!(!self.is_deep, "only an op that asks for any pixels gets those of 16 bits");
        assert!(divisor == 1, "only a crop may read a picture at another scale");
        (rect, View::packed(&self.memory, rect.width, rect.height, self.channels))
    }

    fn check_complete(&self) {
        assert!(self.excerpt.is_none(), "only a crop may read a picture of which a part is in memory");
    }

    /// Narrows the picture to a rectangle. No bytes are moved.
    pub(crate) fn crop(&mut self, rect: Rect) {
        assert!(rect.is_inside(self.width, self.height), "a crop lies inside its picture");
        let rect = match self.excerpt.take() {
            None => rect,
            Some(Excerpt { rect: loaded, divisor }) => {
                // From coordinates of the picture to those of the decoded scale, then relative to the part in memory.
                let rect = shrink(rect, divisor, loaded.right(), loaded.bottom());
                assert!(loaded.contains(&rect), "{loaded:?} is in memory, but {rect:?} is needed");
                Rect { left: rect.left - loaded.left, top: rect.top - loaded.top, ..rect }
            }
        };
        // The stride stays that of the larger picture.
        self.offset += rect.top as usize * self.stride + rect.left as usize * self.pixel_bytes();
        (self.width, self.height) = (rect.width, rect.height);
    }

    /// The rows, without what is beside them.
    pub(crate) fn rows(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.check_complete();
        (0..self.height as usize).map(|number| &self.memory[self.offset + number * self.stride..][..self.row_bytes()])
    }

    /// Copies the rows without gaps.
    pub fn copy_to(&self, target: &mut [u8]) {
        self.check_complete();
        let row = self.row_bytes();
        if row == 0 {
            return;
        }
        for (number, target) in target.chunks_exact_mut(row).enumerate() {
            target.copy_from_slice(&self.memory[self.offset + number * self.stride..][..row]);
        }
    }

    /// The delivered shape.
    pub fn shape(&self) -> Vec<usize> {
        pixel_shape(self.height as usize, self.width as usize, self.channels, self.is_mask)
    }
}

/// An array of elements in row-major order.
#[derive(Debug)]
pub struct Tensor<'s> {
    /// Element type.
    pub dtype: Dtype,
    /// Sides, outermost first.
    pub shape: Vec<usize>,
    /// The meaning of the sides.
    pub axes: Axes,
    /// The elements, native-endian.
    pub memory: Memory<'s>,
}

impl<'s> Tensor<'s> {
    /// A tensor over memory of its size.
    pub fn new(dtype: Dtype, shape: Vec<usize>, memory: Memory<'s>) -> Self {
        assert_eq!(array_bytes(dtype, &shape), Some(memory.len()), "memory of a tensor has its size");
        Self { dtype, shape, axes: Axes::Unknown, memory }
    }

    /// The same tensor with named axes.
    #[must_use]
    pub fn with_axes(self, axes: Axes) -> Self {
        Self { axes, ..self }
    }

    /// If it is a picture with 1 or 3 channels: its axes and the number of channels.
    pub(crate) fn channels(&self) -> Option<(Axes, usize)> {
        let shape: Vec<Option<usize>> = self.shape.iter().copied().map(Some).collect();
        self.axes.channels(&shape)
    }
}

/// The data of one field.
#[derive(Debug)]
pub enum Value<'s> {
    /// Encoded bytes.
    Bytes(Encoded<'s>),
    /// Text.
    Text(String),
    /// A picture or mask.
    Pixels(Pixels<'s>),
    /// A volume.
    Volume(Volume<'s>),
    /// An array.
    Tensor(Tensor<'s>),
}

impl<'a> Value<'a> {
    /// The memory of the value. Text has none that can be reused.
    pub fn into_memory(self) -> Option<Memory<'a>> {
        match self {
            Self::Bytes(encoded) => Some(encoded.memory),
            Self::Pixels(pixels) => Some(pixels.memory),
            Self::Volume(volume) => Some(volume.memory),
            Self::Tensor(tensor) => Some(tensor.memory),
            Self::Text(_) => None,
        }
    }
}

impl Value<'_> {
    /// Describes it, for messages.
    pub(crate) fn describe(&self) -> &'static str {
        match self {
            Self::Bytes(_) => "encoded bytes",
            Self::Text(_) => "text",
            Self::Pixels(pixels) if pixels.is_mask => "a mask",
            Self::Pixels(pixels) if pixels.is_deep => "pixels of 16 bits",
            Self::Pixels(_) => "pixels",
            Self::Volume(_) => "a volume",
            Self::Tensor(_) => "a tensor",
        }
    }

    /// Element type and shape, if it is an array.
    pub fn array(&self) -> Option<(Dtype, Vec<usize>)> {
        match self {
            Self::Bytes(_) | Self::Text(_) => None,
            Self::Pixels(pixels) => Some((pixels.dtype(), pixels.shape())),
            Self::Volume(volume) => Some((volume.dtype, volume.shape())),
            Self::Tensor(tensor) => Some((tensor.dtype, tensor.shape.clone())),
        }
    }

    /// Bytes of its content.
    pub fn content_bytes(&self) -> usize {
        match self {
            Self::Bytes(encoded) => encoded.memory.len(),
            Self::Text(text) => text.len(),
            Self::Pixels(pixels) => pixels.packed_bytes(),
            Self::Volume(volume) => volume.memory.len(),
            Self::Tensor(tensor) => tensor.memory.len(),
        }
    }
}

/// The rectangle of a picture in a version that is `divisor` times smaller and has this size.
pub(crate) fn shrink(rect: Rect, divisor: u32, width: u32, height: u32) -> Rect {
    // Rounded outwards: every pixel that the rectangle touches is included.
    let (left, top) = (rect.left / divisor, rect.top / divisor);
    let (right, bottom) = (rect.right().div_ceil(divisor).min(width), rect.bottom().div_ceil(divisor).min(height));
    Rect { left, top, width: right - left, height: bottom - top }
}
