//! Decodes pictures.
//!
//! Formats: JPEG, PNG, WebP, TIFF, BMP, PPM, PGM and the first frame of GIF. They are detected by content, not by name. If the seek
//! index of a file is wanted, it is built in the same pass in which a crop is decoded, and handed to its keeper.

use std::cell::OnceCell;

use feedline_codec::{
    self as codec, BadIndex, CodecError, DecodeOptions, Format, Mode, NotSeekable, Picture, Rect, SeekIndex, Trimmed,
    decode_into,
};
use feedline_order::Draw;
use serde::{Deserialize, Serialize};
use serde_inline_default::serde_inline_default;

use super::{DEFAULT_MOST_PIXELS, Decoding, Facts, Need, On, Op, OpError, is_mask_field};
use crate::batch::{
    Encoded, EncodedContent, Excerpt, FieldError, FieldTypes, Kind, Memory, PixelKind, Pixels, Sample, Value,
};
use crate::memory::{Buffer, Workspace};
use crate::op::{Ahead, CheckError};

/// Decodes pictures.
#[serde_inline_default]
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DecodeImage {
    #[serde(default)]
    on: On,
    /// Whether to apply the EXIF orientation.
    #[serde_inline_default(true)]
    exif: bool,
    #[serde(default)]
    mode: PictureMode,
    /// The element type. 8 bits if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dtype: Option<DeepType>,
    /// Whether pixels may be approximate, which is faster.
    #[serde(default)]
    fast: bool,
    /// Larger pictures are rejected before memory is allocated.
    #[serde_inline_default(DEFAULT_MOST_PIXELS)]
    max_pixels: u64,
}

/// An element type of more than 8 bits.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum DeepType {
    Uint16,
}

/// The pixel format of the result.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum PictureMode {
    /// A mask for fields named `mask` or `..._mask`, otherwise RGB.
    #[default]
    Auto,
    Rgb,
    Grey,
    /// One channel of labels: palette index or grey value, never blended.
    Mask,
}

impl DecodeImage {
    fn mode_of(&self, field: &str) -> Mode {
        match (self.mode, self.dtype) {
            (PictureMode::Mask, _) => Mode::Mask,
            // Labels keep 8 bits, also beside a picture of 16.
            (PictureMode::Auto, _) if is_mask_field(field) => Mode::Mask,
            (PictureMode::Auto | PictureMode::Rgb, None) => Mode::Rgb,
            (PictureMode::Auto | PictureMode::Rgb, Some(DeepType::Uint16)) => Mode::Rgb16,
            (PictureMode::Grey, None) => Mode::Grey,
            (PictureMode::Grey, Some(DeepType::Uint16)) => Mode::Grey16,
        }
    }
}

impl Op for DecodeImage {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        for (field, kind) in self.on.kinds(types)? {
            // The result of a function may be bytes. That is checked at run time.
            if !matches!(kind, Kind::Bytes | Kind::Any) {
                return Err(CheckError::Needs { needs: "encoded bytes", field, has: kind });
            }
            let mode = self.mode_of(&field);
            let (channels, is_deep, is_mask) = (mode.channels(), mode.is_deep(), matches!(mode, Mode::Mask));
            types.set(&field, Kind::Pixels(PixelKind { channels, height: None, width: None, is_mask, is_deep }));
        }
        Ok(())
    }

    fn decoding(&self, field: &str) -> Option<Decoding> {
        let Self { exif, max_pixels, fast, .. } = *self;
        Some(Decoding { mode: self.mode_of(field), exif, max_pixels, fast })
    }

    fn apply(&self, sample: &mut Sample<'_>, _: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        self.on.names().try_for_each(|name| self.decode(sample, name, |_| None, workspace))
    }

    fn apply_ahead(
        &self,
        sample: &mut Sample<'_>,
        _: &Draw,
        ahead: &Ahead<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), OpError> {
        let mut names = self.on.names();
        names.try_for_each(|name| self.decode(sample, name, |facts| ahead.need(name, facts), workspace))
    }
}

impl DecodeImage {
    fn decode(
        &self,
        sample: &mut Sample<'_>,
        name: &str,
        need: impl Fn(Facts) -> Option<Need>,
        workspace: &mut Workspace,
    ) -> Result<(), OpError> {
        let encoded = match sample.take(name)? {
            Value::Bytes(encoded) => encoded,
            other => {
                let (has, needs) = (other.describe(), "encoded bytes");
                return Err(FieldError::Kind { name: name.to_owned(), has, needs }.into());
            }
        };
        let decoding = self.decoding(name).expect("it decodes");
        let trimmed = match encoded.content {
            EncodedContent::Trimmed => Some(Trimmed::read(&encoded.memory).map_err(CodecError::from)?),
            EncodedContent::Whole { .. } | EncodedContent::Unindexed(_) | EncodedContent::Part { .. } => None,
        };
        let built = OnceCell::new();
        let bytes = as_codec(&encoded, trimmed.as_ref(), &built);
        let header = bytes.header()?;
        let facts = decoding.facts(&header);
        let need = need(facts);
        let (mode, is_mask) = (decoding.mode, matches!(decoding.mode, Mode::Mask));
        let (channels, pixel_bytes) = (mode.channels(), mode.pixel_bytes());
        let crop = need.map_or_else(|| Rect::whole(facts.width, facts.height), |need| decoding.crop(&header, need));
        // The decoder rejects larger pictures itself. Reserving memory for them would only turn that error into a wait.
        if u64::from(header.width) * u64::from(header.height) <= self.max_pixels {
            workspace.reserve(header.decode_bytes(crop, pixel_bytes, self.exif) as usize)?;
        }
        if matches!(encoded.content, EncodedContent::Unindexed(_)) && header.format == Format::Jpeg {
            // The pass over a JPEG copies its data, without stuffing.
            workspace.reserve(encoded.memory.len())?;
        }
        let area = (u64::from(crop.width) * u64::from(crop.height)).min(self.max_pixels) as usize;
        // A buffer of an earlier sample is reused. The decoder grows it if it is too small.
        let pixels = workspace.spare_memory(area * usize::from(pixel_bytes));
        let mut picture = Picture { width: 0, height: 0, channels: 0, pixels };
        let cancel = workspace.cancel().clone();
        let cancel = || cancel.is_cancelled();
        let options = decoding.options(need, &cancel);
        // Without a need and with the whole file, nothing can be skipped.
        let part = match need {
            None if encoded.is_whole() => decode_into(&encoded.memory, &options, &mut picture).map(|()| crop),
            _ => decode_part(bytes, encoded.is_whole(), crop, &options, &mut picture),
        };
        // It borrows the encoded bytes, which are given back below.
        drop(trimmed);
        if let (Some(built), EncodedContent::Unindexed(keeper)) = (built.get(), &encoded.content) {
            keeper.keep(built.as_ref().map_err(|reason| *reason));
        }
        let rect = part?;
        let Picture { width, height, pixels, .. } = picture;
        let len = width as usize * height as usize * usize::from(pixel_bytes);
        let memory = Memory::Heap(Buffer::reusing(pixels, len).expect("the decoder has made room"));
        let part_of = |need| Excerpt { rect, divisor: decoding.divisor(&header, need) };
        let pixels = match need {
            None if mode.is_deep() => Pixels::deep(memory, (width, height), None, channels),
            Some(need) if mode.is_deep() => {
                Pixels::deep(memory, (facts.width, facts.height), Some(part_of(need)), channels)
            }
            None => Pixels::packed(memory, width, height, channels, is_mask),
            // The picture keeps its full size for the crop that follows, but only this part has pixels.
            Some(need) => Pixels::part(memory, (facts.width, facts.height), part_of(need), channels, is_mask),
        };
        sample.give_back(name, encoded.memory, workspace);
        sample.put(name, Value::Pixels(pixels));
        Ok(())
    }
}

/// Decodes by the index. If the index turns out wrong, decodes without it. If only a part of the file is there, it must be loaded
/// again.
fn decode_part(
    encoded: codec::Encoded<'_>,
    is_whole: bool,
    crop: Rect,
    options: &DecodeOptions<'_>,
    picture: &mut Picture,
) -> Result<Rect, CodecError> {
    match (codec::decode_part_into(encoded, crop, options, picture), encoded) {
        // The whole file is in memory, so a wrong index costs only a second attempt.
        (Err(error), codec::Encoded::Indexed { bytes, .. }) if error.is_about_data() && is_whole => {
            tracing::debug!(%error, "decoded without the seek index");
            codec::decode_part_into(codec::Encoded::Whole(bytes), crop, options, picture)
        }
        (Err(error), codec::Encoded::Indexed { .. } | codec::Encoded::Trimmed(_)) if error.is_about_data() => {
            // The caller loads the whole file and tries again.
            Err(CodecError::Index(BadIndex::of_part()))
        }
        (decoded, _) => decoded,
    }
}

/// The encoded bytes for the decoder. `built` gets the index, if one is wanted.
fn as_codec<'a>(
    encoded: &'a Encoded<'_>,
    trimmed: Option<&'a Trimmed<'a>>,
    built: &'a OnceCell<Result<SeekIndex, NotSeekable>>,
) -> codec::Encoded<'a> {
    let bytes = &*encoded.memory;
    match (&encoded.content, trimmed) {
        (_, Some(trimmed)) => codec::Encoded::Trimmed(trimmed),
        (EncodedContent::Part { offset, index }, _) => codec::Encoded::Indexed { bytes, offset: *offset, index },
        (EncodedContent::Whole { index: Some(index) }, _) => codec::Encoded::Indexed { bytes, offset: 0, index },
        (EncodedContent::Unindexed(_), _) => codec::Encoded::Unindexed { bytes, index: built },
        (EncodedContent::Whole { index: None } | EncodedContent::Trimmed, _) => codec::Encoded::Whole(bytes),
    }
}
