//! Puts the fields of a record into a sample, as far as the following ops need them.

use std::ops::Range;
use std::sync::Arc;

use feedline_codec::SeekIndex;
use feedline_data::batch::{Encoded, EncodedContent, Excerpt, Memory, OutputError, Pixels, Sample, Tensor, Value};
use feedline_data::cut::Cut;
use feedline_data::memory::{NoMemory, Workspace};
use feedline_data::op::{Ahead, Facts, Need};
use feedline_data::plan::Plan;
use feedline_data::volume::{Foreground, Region};
use feedline_order::SampleRequest;

use super::fields::{KeptPixels, RecordContent, RecordField};

/// The cut at which a sample continues. The ops after it may need only a part of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resume<'a> {
    /// The plan whose ops follow.
    pub plan: &'a Plan,
    /// Number of ops that are done.
    pub cut: Cut,
    /// The sample, for the draws of the ops.
    pub request: SampleRequest,
}

/// Puts the fields of a record into a sample. `None` if the bytes are not a valid record.
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
        let Some(fields) = RecordField::all_of(record) else { return Ok(None) };
        let foregrounds: Vec<(&str, Option<Arc<Foreground>>)> =
            fields.iter().filter_map(RecordField::foreground).collect();
        let foreground = |label: &str| foregrounds.iter().find(|(field, _)| *field == label)?.1.clone();
        for RecordField { name, content } in fields {
            let value = match content {
                RecordContent::Bytes { index, bytes } => {
                    let Some(encoded) = self.encoded(name, index, bytes, workspace)? else { return Ok(None) };
                    Value::Bytes(encoded)
                }
                RecordContent::Trimmed(bytes) => {
                    let memory = copied(bytes, workspace)?;
                    Value::Bytes(Encoded { memory, content: EncodedContent::Trimmed })
                }
                RecordContent::PixelsPart { size, excerpt, format, bytes } => {
                    Value::Pixels(format.pixels(copied(bytes, workspace)?, size, Some(excerpt)))
                }
                RecordContent::Text(text) => Value::Text(text.to_owned()),
                RecordContent::Pixels(kept) => Value::Pixels(self.pixels(name, &kept, workspace)?),
                RecordContent::Volume(kept) => {
                    let sides = kept.whole.sides;
                    let region = self.ahead().region(name, sides, &mut |label| foreground(label));
                    let volume = kept.copied(name, region.unwrap_or(Region::whole(sides)), sample, workspace)?;
                    Value::Volume(volume.with_foreground(foreground(name)))
                }
                RecordContent::Tensor { dtype, shape, axes, bytes } => {
                    let mut memory = sample.output(name, dtype, &shape, workspace)?;
                    memory.copy_from_slice(bytes);
                    Value::Tensor(Tensor::new(dtype, shape, memory).with_axes(axes))
                }
            };
            sample.put(name, value);
        }
        Ok(Some(()))
    }

    /// The ops after the cut.
    fn ahead(&self) -> Ahead<'_> {
        self.plan.chain().ahead_from(self.cut.0, self.request)
    }

    /// An encoded file, or the part that the crop after its decoder needs. `None` if its index is damaged.
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
        // The index comes from the same record, which may be damaged, so its ranges are checked.
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

    /// A picture, or the rows and columns that the next crop needs.
    fn pixels<'s>(&self, name: &str, kept: &KeptPixels<'_>, workspace: &mut Workspace) -> Result<Pixels<'s>, NoMemory> {
        let KeptPixels { width, height, format, bytes } = *kept;
        let need = self.ahead().need(name, Facts { width, height });
        let Some(Need { rect, .. }) = need.filter(|need| need.rect.is_inside(width, height)) else {
            return Ok(format.pixels(copied(bytes, workspace)?, (width, height), None));
        };
        let pixel = usize::from(format.channels) * format.dtype().bytes();
        let (row, stride) = (rect.width as usize * pixel, width as usize * pixel);
        let mut buffer = workspace.buffer(row * rect.height as usize)?;
        for (number, target) in buffer.as_mut_slice().chunks_exact_mut(row).enumerate() {
            // Offset of the row's first needed pixel in the whole picture.
            let start = (rect.top as usize + number) * stride + rect.left as usize * pixel;
            target.copy_from_slice(&bytes[start..start + row]);
        }
        let excerpt = Excerpt { rect, divisor: 1 };
        Ok(format.pixels(Memory::Heap(buffer), (width, height), Some(excerpt)))
    }
}

/// The bytes of an encoded field that the crop after its decoder needs.
fn needed_bytes(index: &SeekIndex, field: &str, plan: &Plan, request: SampleRequest) -> Option<Range<u64>> {
    let (decoder, decoding) = plan.chain().decoder_of(field)?;
    let header = index.header();
    let need = plan.chain().ahead(decoder, request).need(field, decoding.facts(&header))?;
    index.bytes_for(decoding.crop(&header, need), &decoding.options(Some(need), &|| false)).ok()
}

fn copied<'s>(bytes: &[u8], workspace: &mut Workspace) -> Result<Memory<'s>, NoMemory> {
    let mut buffer = workspace.buffer(bytes.len())?;
    buffer.as_mut_slice().copy_from_slice(bytes);
    Ok(Memory::Heap(buffer))
}
