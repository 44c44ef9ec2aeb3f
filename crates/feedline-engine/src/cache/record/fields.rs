//! Reads the fields of a record. Always true: numbers and lengths that were read are consistent.

use std::sync::Arc;

use feedline_codec::Rect;
use feedline_data::batch::{Axes, Excerpt, Memory, OutputError, Pixels, Sample, Volume, VolumeShape, volume_shape};
use feedline_data::dtype::{Dtype, array_bytes};
use feedline_data::memory::Workspace;
use feedline_data::volume::{Foreground, Region};

use super::{BYTES, PIXELS, PIXELS_PART, TENSOR, TEXT, TRIMMED, VOLUME};

/// A field of a record.
pub(super) struct RecordField<'a> {
    pub name: &'a str,
    pub content: RecordContent<'a>,
}

pub(super) enum RecordContent<'a> {
    Bytes { index: &'a [u8], bytes: &'a [u8] },
    Trimmed(&'a [u8]),
    Text(&'a str),
    PixelsPart { size: (u32, u32), excerpt: Excerpt, format: KeptFormat, bytes: &'a [u8] },
    Pixels(KeptPixels<'a>),
    Tensor { dtype: Dtype, shape: Vec<usize>, axes: Axes, bytes: &'a [u8] },
    Volume(KeptVolume<'a>),
}

pub(super) struct KeptPixels<'a> {
    pub width: u32,
    pub height: u32,
    pub format: KeptFormat,
    pub bytes: &'a [u8],
}

/// The format of pixels.
#[derive(Clone, Copy)]
pub(super) struct KeptFormat {
    pub channels: u8,
    pub is_mask: bool,
    pub is_deep: bool,
}

impl KeptFormat {
    fn read(reader: &mut RecordReader<'_>) -> Option<Self> {
        let [channels, flags @ 0..=2] = *reader.array()? else { return None };
        Some(Self { channels, is_mask: flags == 1, is_deep: flags == 2 })
    }

    pub(super) fn dtype(self) -> Dtype {
        if self.is_deep { Dtype::U16 } else { Dtype::U8 }
    }

    /// Pixels of this format that fill their memory, or a part of a picture.
    pub(super) fn pixels(
        self,
        memory: Memory<'_>,
        (width, height): (u32, u32),
        excerpt: Option<Excerpt>,
    ) -> Pixels<'_> {
        match excerpt {
            _ if self.is_deep => Pixels::deep(memory, (width, height), excerpt, self.channels),
            None => Pixels::packed(memory, width, height, self.channels, self.is_mask),
            Some(excerpt) => Pixels::part(memory, (width, height), excerpt, self.channels, self.is_mask),
        }
    }
}

pub(super) struct KeptVolume<'a> {
    pub whole: VolumeShape,
    spacing: Option<[f64; 3]>,
    foreground: Option<&'a [u8]>,
    bytes: &'a [u8],
}

impl<'a> KeptVolume<'a> {
    fn read(reader: &mut RecordReader<'a>) -> Option<Self> {
        let [is_label, has_spacing] = *reader.array()?;
        let dtype = reader.dtype()?;
        let mut shape = [0; 4];
        for side in &mut shape {
            *side = reader.len()?;
        }
        let mut spacing = [0.0; 3];
        for number in &mut spacing {
            *number = f64::from_le_bytes(*reader.array()?);
        }
        let [has_foreground] = *reader.array()?;
        let (foreground, bytes) = (reader.piece()?, reader.piece()?);
        // Axes are channel, depth, height, width.
        let [channels, sides @ ..] = shape;
        let this = Self {
            whole: VolumeShape { dtype, channels, sides, is_label: is_label != 0 },
            spacing: (has_spacing != 0).then_some(spacing),
            foreground: (has_foreground != 0).then_some(foreground),
            bytes,
        };
        (array_bytes(dtype, &shape) == Some(bytes.len())).then_some(this)
    }

    /// Copies a region of the pixels.
    pub(super) fn copied<'s>(
        &self,
        name: &str,
        region: Region,
        sample: &mut Sample<'s>,
        workspace: &mut Workspace,
    ) -> Result<Volume<'s>, OutputError> {
        let VolumeShape { dtype, channels, sides, .. } = self.whole;
        let mut memory = sample.output(name, dtype, &volume_shape(channels, region.sides), workspace)?;
        region.copy_from(self.bytes, channels, sides, dtype.bytes(), &mut memory);
        Ok(Volume::part(memory, region, self.whole).with_spacing(self.spacing))
    }
}

impl<'a> RecordField<'a> {
    /// The name of a label, and its foreground if the record contains it.
    pub(super) fn foreground(&self) -> Option<(&'a str, Option<Arc<Foreground>>)> {
        let RecordContent::Volume(KeptVolume { whole, foreground, .. }) = &self.content else { return None };
        Some((self.name, foreground.and_then(|bytes| Foreground::from_bytes(bytes, whole.sides)).map(Arc::new)))
    }

    /// The fields of a record. `None` if the bytes are not a valid record.
    pub(super) fn all_of(record: &'a [u8]) -> Option<Vec<Self>> {
        let mut reader = RecordReader(record);
        let mut fields = Vec::new();
        while !reader.0.is_empty() {
            fields.push(Self::read(&mut reader)?);
        }
        Some(fields)
    }

    fn read(reader: &mut RecordReader<'a>) -> Option<Self> {
        let name = reader.text()?;
        let content = match reader.array::<1>()? {
            [BYTES] => RecordContent::Bytes { index: reader.piece()?, bytes: reader.piece()? },
            [TEXT] => RecordContent::Text(reader.text()?),
            [PIXELS] => {
                let format = KeptFormat::read(reader)?;
                let (width, height) = (reader.number()?, reader.number()?);
                let bytes = reader.piece()?;
                let sides = [width as usize, height as usize, usize::from(format.channels)];
                let is_right = array_bytes(format.dtype(), &sides) == Some(bytes.len());
                RecordContent::Pixels(is_right.then_some(KeptPixels { width, height, format, bytes })?)
            }
            [PIXELS_PART] => {
                let format = KeptFormat::read(reader)?;
                let mut numbers = [0; 7];
                for number in &mut numbers {
                    *number = reader.number()?;
                }
                let [width, height, left, top, columns, rows, divisor] = numbers;
                let rect = Rect { left, top, width: columns, height: rows };
                let bytes = reader.piece()?;
                let sides = [columns as usize, rows as usize, usize::from(format.channels)];
                let is_right = array_bytes(format.dtype(), &sides) == Some(bytes.len())
                    && divisor > 0
                    // The part was decoded at 1/divisor of the size. Sides are rounded up, as JPEG scaling does.
                    && rect.is_inside(width.div_ceil(divisor), height.div_ceil(divisor));
                let (size, excerpt) = ((width, height), Excerpt { rect, divisor });
                is_right.then_some(RecordContent::PixelsPart { size, excerpt, format, bytes })?
            }
            [TRIMMED] => RecordContent::Trimmed(reader.piece()?),
            [TENSOR] => {
                let [axes, sides] = *reader.array()?;
                let axes = [Axes::Unknown, Axes::Chw, Axes::Hwc].into_iter().find(|&known| known as u8 == axes)?;
                let dtype = reader.dtype()?;
                let side = |_| reader.len();
                let shape: Option<Vec<usize>> = (0..sides).map(side).collect();
                let (shape, bytes) = (shape?, reader.piece()?);
                let is_right = array_bytes(dtype, &shape) == Some(bytes.len());
                is_right.then_some(RecordContent::Tensor { dtype, shape, axes, bytes })?
            }
            [VOLUME] => RecordContent::Volume(KeptVolume::read(reader)?),
            _ => return None,
        };
        Some(Self { name, content })
    }
}

struct RecordReader<'a>(&'a [u8]);

impl<'a> RecordReader<'a> {
    fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(array)
    }

    fn number(&mut self) -> Option<u32> {
        self.array().copied().map(u32::from_le_bytes)
    }

    fn len(&mut self) -> Option<usize> {
        usize::try_from(u64::from_le_bytes(*self.array()?)).ok()
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.piece()?).ok()
    }

    fn dtype(&mut self) -> Option<Dtype> {
        Dtype::from_name(self.text()?)
    }

    fn piece(&mut self) -> Option<&'a [u8]> {
        let len = self.len()?;
        // A length beyond the end makes the record invalid. Nothing is allocated for it.
        let (piece, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(piece)
    }
}
