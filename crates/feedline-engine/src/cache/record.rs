//! A sample as bytes: what a cache keeps of it, or a peer sends of it, and what is given back as far as it is needed.
//!
//! In: the fields of a sample at some place of the op chain. Out: one piece of memory; from it, the fields again. Of
//! pictures, volumes and encoded files that are cropped next, only the part that the crop needs is copied.

use std::ops::Range;
use std::sync::Arc;

use feedline_codec::{Rect, SeekIndex};
use feedline_data::batch::{
    Axes, Encoded, EncodedContent, Excerpt, Memory, OutputError, Pixels, Sample, Tensor, Value, Volume, VolumeShape,
    volume_shape,
};
use feedline_data::cut::Cut;
use feedline_data::dtype::{Dtype, array_bytes};
use feedline_data::memory::{NoMemory, Workspace};
use feedline_data::op::{Ahead, Facts, Need};
use feedline_data::plan::Plan;
use feedline_data::volume::{Foreground, Region};
use feedline_order::SampleRequest;

const BYTES: u8 = 0;
const TEXT: u8 = 1;
const PIXELS: u8 = 2;
const TENSOR: u8 = 3;
const VOLUME: u8 = 4;
const PIXELS_PART: u8 = 5;
const TRIMMED: u8 = 6;

/// Writes the fields of a sample that will be needed by others too; `None` if a part of one is not there.
pub(crate) fn write(sample: &Sample<'_>) -> Option<Vec<u8>> {
    let is_all_there = |value: &Value<'_>| match value {
        Value::Bytes(encoded) => encoded.is_whole(),
        Value::Pixels(pixels) => pixels.excerpt.is_none(),
        Value::Volume(_) | Value::Text(_) | Value::Tensor(_) => true,
    };
    if sample.values().all(|(_, value)| is_all_there(value)) { write_parts(sample) } else { None }
}

/// Writes the fields of a sample as they are; `None` if a part of one is not there that cannot be told, or the system has no
/// memory for it.
pub(crate) fn write_parts(sample: &Sample<'_>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    // One byte more, for how it is packed.
    out.try_reserve_exact(sample.values().map(|(_, value)| value.content_bytes() + 256).sum::<usize>() + 1).ok()?;
    for (name, value) in sample.values() {
        put(&mut out, name.as_bytes());
        match value {
            Value::Bytes(Encoded { memory, content: EncodedContent::Whole { index } }) => {
                out.push(BYTES);
                put(&mut out, &index.as_ref().map(SeekIndex::to_bytes).unwrap_or_default());
                put(&mut out, memory);
            }
            Value::Bytes(Encoded { memory, content: EncodedContent::Trimmed }) => {
                out.push(TRIMMED);
                put(&mut out, memory);
            }
            Value::Text(text) => {
                out.push(TEXT);
                put(&mut out, text.as_bytes());
            }
            Value::Pixels(Pixels { excerpt: Some(excerpt), memory, width, height, channels, is_mask, .. }) => {
                let Rect { left, top, width: columns, height: rows } = excerpt.rect;
                out.extend([PIXELS_PART, *channels, u8::from(*is_mask)]);
                let numbers = [*width, *height, left, top, columns, rows, excerpt.divisor];
                out.extend(numbers.into_iter().flat_map(u32::to_le_bytes));
                put(&mut out, memory);
            }
            Value::Pixels(pixels) => {
                out.extend([PIXELS, pixels.channels, u8::from(pixels.is_mask)]);
                out.extend(pixels.width.to_le_bytes());
                out.extend(pixels.height.to_le_bytes());
                out.extend((pixels.packed_bytes() as u64).to_le_bytes());
                let start = out.len();
                out.resize(start + pixels.packed_bytes(), 0);
                pixels.copy_to(&mut out[start..]);
            }
            Value::Tensor(tensor) => {
                out.extend([TENSOR, tensor.axes as u8, tensor.shape.len() as u8]);
                put(&mut out, tensor.dtype.name().as_bytes());
                out.extend(tensor.shape.iter().flat_map(|&side| (side as u64).to_le_bytes()));
                put(&mut out, &tensor.memory);
            }
            Value::Volume(volume) if volume.excerpt.is_none() => {
                out.extend([VOLUME, u8::from(volume.is_label), u8::from(volume.spacing.is_some())]);
                put(&mut out, volume.dtype.name().as_bytes());
                out.extend(volume.shape().into_iter().flat_map(|side| (side as u64).to_le_bytes()));
                out.extend(volume.spacing.unwrap_or_default().into_iter().flat_map(f64::to_le_bytes));
                let foreground = volume.known_foreground();
                out.push(u8::from(foreground.is_some()));
                put(&mut out, &foreground.map(|found| found.to_bytes()).unwrap_or_default());
                put(&mut out, &volume.memory);
            }
            Value::Bytes(_) | Value::Volume(_) => return None,
        }
    }
    Some(out)
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

/// The place in the chain at which a sample goes on: the ops behind it may need only a part of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resume<'a> {
    /// The plan whose ops follow.
    pub plan: &'a Plan,
    /// How many of them are done.
    pub cut: Cut,
    /// The sample, by which the ops draw.
    pub request: SampleRequest,
}

/// Gives a sample its fields from a record; `None` if these are not the bytes of a sample.
pub(crate) fn read(
    record: &[u8],
    sample: &mut Sample<'_>,
    resume: Resume<'_>,
    workspace: &mut Workspace,
) -> Result<Option<()>, NoMemory> {
    match resume.read(record, sample, workspace) {
        Ok(found) => Ok(found),
        Err(OutputError::Memory(memory)) => Err(memory),
        Err(OutputError::Field(_)) => Ok(None),
    }
}

impl Resume<'_> {
    fn read(
        self,
        record: &[u8],
        sample: &mut Sample<'_>,
        workspace: &mut Workspace,
    ) -> Result<Option<()>, OutputError> {
        let mut reader = Reader(record);
        let mut fields = Vec::new();
        while !reader.0.is_empty() {
            let Some(field) = Field::read(&mut reader) else { return Ok(None) };
            fields.push(field);
        }
        let foregrounds: Vec<(&str, Option<Arc<Foreground>>)> = fields.iter().filter_map(Field::foreground).collect();
        let foreground = |label: &str| foregrounds.iter().find(|(field, _)| *field == label)?.1.clone();
        for Field { name, content } in fields {
            let value = match content {
                Content::Bytes { index, bytes } => {
                    let Some(encoded) = self.encoded(name, index, bytes, workspace)? else { return Ok(None) };
                    Value::Bytes(encoded)
                }
                Content::Trimmed(bytes) => {
                    let memory = copied(bytes, workspace)?;
                    Value::Bytes(Encoded { memory, content: EncodedContent::Trimmed })
                }
                Content::PixelsPart { size, excerpt, channels, is_mask, bytes } => {
                    Value::Pixels(Pixels::part(copied(bytes, workspace)?, size, excerpt, channels, is_mask))
                }
                Content::Text(text) => Value::Text(text.to_owned()),
                Content::Pixels(kept) => Value::Pixels(self.pixels(name, &kept, workspace)?),
                Content::Volume(kept) => {
                    let sides = kept.whole.sides;
                    let region = self.ahead().region(name, sides, &mut |label| foreground(label));
                    let volume = kept.copied(name, region.unwrap_or(Region::whole(sides)), sample, workspace)?;
                    Value::Volume(volume.with_foreground(foreground(name)))
                }
                Content::Tensor { dtype, shape, axes, bytes } => {
                    let mut memory = sample.output(name, dtype, &shape, workspace)?;
                    memory.copy_from_slice(bytes);
                    Value::Tensor(Tensor::new(dtype, shape, memory).with_axes(axes))
                }
            };
            sample.put(name, value);
        }
        Ok(Some(()))
    }

    /// The ops that follow.
    fn ahead(&self) -> Ahead<'_> {
        self.plan.chain().ahead_from(self.cut.0, self.request)
    }

    /// An encoded file, or what the crop behind its decoder needs of it; `None` if its index is damaged.
    fn encoded<'s>(
        &self,
        name: &str,
        index: &[u8],
        bytes: &[u8],
        workspace: &mut Workspace,
    ) -> Result<Option<Encoded<'s>>, NoMemory> {
        let index = (!index.is_empty()).then(|| SeekIndex::from_bytes(index)).transpose();
        let Ok(index) = index else { return Ok(None) };
        let needed = index.as_ref().and_then(|index| needed_bytes(index, name, self.plan, self.request));
        let part = needed.filter(|range| range.end <= bytes.len() as u64);
        let (bytes, content) = match (index, part) {
            (Some(index), Some(range)) => {
                let part = &bytes[range.start as usize..range.end as usize];
                (part, EncodedContent::Part { offset: range.start, index })
            }
            (index, _) => (bytes, EncodedContent::Whole { index }),
        };
        Ok(Some(Encoded { memory: copied(bytes, workspace)?, content }))
    }

    /// A picture, or the rows and columns of it that the next crop needs.
    fn pixels<'s>(&self, name: &str, kept: &KeptPixels<'_>, workspace: &mut Workspace) -> Result<Pixels<'s>, NoMemory> {
        let KeptPixels { width, height, channels, is_mask, bytes } = *kept;
        let need = self.ahead().need(name, Facts { width, height });
        let Some(Need { rect, .. }) = need.filter(|need| need.rect.is_inside(width, height)) else {
            return Ok(Pixels::packed(copied(bytes, workspace)?, width, height, channels, is_mask));
        };
        let pixel = usize::from(channels);
        let (row, stride) = (rect.width as usize * pixel, width as usize * pixel);
        let mut buffer = workspace.buffer(row * rect.height as usize)?;
        for (number, target) in buffer.as_mut_slice().chunks_exact_mut(row).enumerate() {
            let start = (rect.top as usize + number) * stride + rect.left as usize * pixel;
            target.copy_from_slice(&bytes[start..start + row]);
        }
        let excerpt = Excerpt { rect, divisor: 1 };
        Ok(Pixels::part(Memory::Heap(buffer), (width, height), excerpt, channels, is_mask))
    }
}

/// The bytes of an encoded field that the crop behind its decoder needs.
fn needed_bytes(index: &SeekIndex, field: &str, plan: &Plan, wanted: SampleRequest) -> Option<Range<u64>> {
    let (decoder, decoding) = plan.chain().decoder_of(field)?;
    let header = index.header();
    let need = plan.chain().ahead(decoder, wanted).need(field, decoding.facts(&header))?;
    index.bytes_for(decoding.crop(&header, need), &decoding.options(Some(need), &|| false)).ok()
}

fn copied<'s>(bytes: &[u8], workspace: &mut Workspace) -> Result<Memory<'s>, NoMemory> {
    let mut buffer = workspace.buffer(bytes.len())?;
    buffer.as_mut_slice().copy_from_slice(bytes);
    Ok(Memory::Heap(buffer))
}

struct Field<'a> {
    name: &'a str,
    content: Content<'a>,
}

enum Content<'a> {
    Bytes { index: &'a [u8], bytes: &'a [u8] },
    Trimmed(&'a [u8]),
    Text(&'a str),
    PixelsPart { size: (u32, u32), excerpt: Excerpt, channels: u8, is_mask: bool, bytes: &'a [u8] },
    Pixels(KeptPixels<'a>),
    Tensor { dtype: Dtype, shape: Vec<usize>, axes: Axes, bytes: &'a [u8] },
    Volume(KeptVolume<'a>),
}

struct KeptPixels<'a> {
    width: u32,
    height: u32,
    channels: u8,
    is_mask: bool,
    bytes: &'a [u8],
}

struct KeptVolume<'a> {
    whole: VolumeShape,
    spacing: Option<[f64; 3]>,
    foreground: Option<&'a [u8]>,
    bytes: &'a [u8],
}

impl<'a> KeptVolume<'a> {
    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let [is_label, has_spacing] = *reader.array()?;
        let dtype = Dtype::from_name(std::str::from_utf8(reader.piece()?).ok()?)?;
        let mut shape = [0; 4];
        for side in &mut shape {
            *side = usize::try_from(u64::from_le_bytes(*reader.array()?)).ok()?;
        }
        let mut spacing = [0.0; 3];
        for number in &mut spacing {
            *number = f64::from_le_bytes(*reader.array()?);
        }
        let [has_foreground] = *reader.array()?;
        let (foreground, bytes) = (reader.piece()?, reader.piece()?);
        let [channels, sides @ ..] = shape;
        let this = Self {
            whole: VolumeShape { dtype, channels, sides, is_label: is_label != 0 },
            spacing: (has_spacing != 0).then_some(spacing),
            foreground: (has_foreground != 0).then_some(foreground),
            bytes,
        };
        (array_bytes(dtype, &shape) == Some(bytes.len())).then_some(this)
    }

    fn copied<'s>(
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

impl<'a> Field<'a> {
    /// The name of a label, and its foreground if that was kept.
    fn foreground(&self) -> Option<(&'a str, Option<Arc<Foreground>>)> {
        let Content::Volume(KeptVolume { whole, foreground, .. }) = &self.content else { return None };
        Some((self.name, foreground.and_then(|bytes| Foreground::from_bytes(bytes, whole.sides)).map(Arc::new)))
    }

    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let name = std::str::from_utf8(reader.piece()?).ok()?;
        let content = match reader.array::<1>()? {
            [BYTES] => Content::Bytes { index: reader.piece()?, bytes: reader.piece()? },
            [TEXT] => Content::Text(std::str::from_utf8(reader.piece()?).ok()?),
            [PIXELS] => {
                let [channels, is_mask] = *reader.array()?;
                let (width, height) = (u32::from_le_bytes(*reader.array()?), u32::from_le_bytes(*reader.array()?));
                let bytes = reader.piece()?;
                let is_right = array_bytes(Dtype::U8, &[width as usize, height as usize, usize::from(channels)])
                    == Some(bytes.len());
                Content::Pixels(is_right.then_some(KeptPixels {
                    width,
                    height,
                    channels,
                    is_mask: is_mask != 0,
                    bytes,
                })?)
            }
            [PIXELS_PART] => {
                let [channels, is_mask] = *reader.array()?;
                let mut numbers = [0; 7];
                for number in &mut numbers {
                    *number = u32::from_le_bytes(*reader.array()?);
                }
                let [width, height, left, top, columns, rows, divisor] = numbers;
                let rect = Rect { left, top, width: columns, height: rows };
                let bytes = reader.piece()?;
                let sides = [columns as usize, rows as usize, usize::from(channels)];
                let is_right = array_bytes(Dtype::U8, &sides) == Some(bytes.len())
                    && divisor > 0
                    && rect.is_inside(width.div_ceil(divisor), height.div_ceil(divisor));
                let (size, is_mask, excerpt) = ((width, height), is_mask != 0, Excerpt { rect, divisor });
                is_right.then_some(Content::PixelsPart { size, excerpt, channels, is_mask, bytes })?
            }
            [TRIMMED] => Content::Trimmed(reader.piece()?),
            [TENSOR] => {
                let [axes, sides] = *reader.array()?;
                let axes = [Axes::Unknown, Axes::Chw, Axes::Hwc].into_iter().find(|&known| known as u8 == axes)?;
                let dtype = Dtype::from_name(std::str::from_utf8(reader.piece()?).ok()?)?;
                let side = |_| usize::try_from(u64::from_le_bytes(*reader.array()?)).ok();
                let shape: Option<Vec<usize>> = (0..sides).map(side).collect();
                let (shape, bytes) = (shape?, reader.piece()?);
                let is_right = array_bytes(dtype, &shape) == Some(bytes.len());
                is_right.then_some(Content::Tensor { dtype, shape, axes, bytes })?
            }
            [VOLUME] => Content::Volume(KeptVolume::read(reader)?),
            _ => return None,
        };
        Some(Self { name, content })
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(array)
    }

    fn piece(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(u64::from_le_bytes(*self.array()?)).ok()?;
        let (piece, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(piece)
    }
}
