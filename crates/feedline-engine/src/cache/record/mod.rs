//! A sample as bytes: the form in which a cache stores it and a peer sends it.
//!
//! In: the fields of a sample at some cut of the op chain. Out: one block of bytes; from it, the fields again. If a crop follows,
//! only the needed part of pictures, volumes and encoded files is copied.
//!
//! This file writes records. `fields.rs` reads them, and `resume.rs` puts their fields into a sample.

mod fields;
mod resume;

use feedline_codec::{Rect, SeekIndex};
use feedline_data::batch::{Encoded, EncodedContent, Pixels, Sample, Value};

pub(crate) use resume::{Resume, read};

const BYTES: u8 = 0;
const TEXT: u8 = 1;
const PIXELS: u8 = 2;
const TENSOR: u8 = 3;
const VOLUME: u8 = 4;
const PIXELS_PART: u8 = 5;
const TRIMMED: u8 = 6;

/// Writes the fields of a sample for use by others. `None` if only a part of a field is present.
pub(crate) fn write(sample: &Sample<'_>) -> Option<Vec<u8>> {
    let is_all_there = |value: &Value<'_>| match value {
        Value::Bytes(encoded) => encoded.is_whole(),
        Value::Pixels(pixels) => pixels.excerpt.is_none(),
        Value::Volume(_) | Value::Text(_) | Value::Tensor(_) => true,
    };
    if sample.values().all(|(_, value)| is_all_there(value)) { write_parts(sample) } else { None }
}

/// Writes the fields of a sample as they are. `None` if a part is missing and the format cannot express that, or if the system has
/// no memory.
pub(crate) fn write_parts(sample: &Sample<'_>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    // One more byte says how the record is packed.
    out.try_reserve_exact(sample.values().map(|(_, value)| value.content_bytes() + 256).sum::<usize>() + 1).ok()?;
    for (name, value) in sample.values() {
        put(&mut out, name.as_bytes());
        match value {
            Value::Bytes(Encoded { memory, content: EncodedContent::Whole { index } }) => {
                out.push(BYTES);
                put(&mut out, &index.as_ref().map(SeekIndex::to_bytes).unwrap_or_default());
                put(&mut out, memory);
            }
            Value::Bytes(Encoded { memory, content: EncodedContent::Unindexed(_) }) => {
                out.push(BYTES);
                put(&mut out, &[]);
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
            // Layout: kind, channels, flags, seven u32 numbers, length as u64, bytes. All numbers are little-endian.
            Value::Pixels(Pixels {
                excerpt: Some(excerpt), memory, width, height, channels, is_mask, is_deep, ..
            }) => {
                let Rect { left, top, width: columns, height: rows } = excerpt.rect;
                out.extend([PIXELS_PART, *channels, flags(*is_mask, *is_deep)]);
                let numbers = [*width, *height, left, top, columns, rows, excerpt.divisor];
                out.extend(numbers.into_iter().flat_map(u32::to_le_bytes));
                put(&mut out, memory);
            }
            Value::Pixels(pixels) => {
                out.extend([PIXELS, pixels.channels, flags(pixels.is_mask, pixels.is_deep)]);
                out.extend(pixels.width.to_le_bytes());
                out.extend(pixels.height.to_le_bytes());
                out.extend((pixels.packed_bytes() as u64).to_le_bytes());
                let start = out.len();
                out.resize(start + pixels.packed_bytes(), 0);
                pixels.copy_to(&mut out[start..]);
            }
            Value::Tensor(tensor) => {
                // Layout: kind, axes, number of sides, dtype name, sides as u64, bytes.
                out.extend([TENSOR, tensor.axes as u8, tensor.shape.len() as u8]);
                put(&mut out, tensor.dtype.name().as_bytes());
                out.extend(tensor.shape.iter().flat_map(|&side| (side as u64).to_le_bytes()));
                put(&mut out, &tensor.memory);
            }
            Value::Volume(volume) if volume.excerpt.is_none() => {
                // Layout: kind, label flag, spacing flag, dtype name, four sides as u64, three spacings as f64, foreground flag,
                // foreground, bytes.
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

/// Whether pixels are labels, and whether they have 16 bits.
fn flags(is_mask: bool, is_deep: bool) -> u8 {
    u8::from(is_mask) | u8::from(is_deep) << 1
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}
