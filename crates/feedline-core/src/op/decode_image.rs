//! Encoded bytes become pixels.
//!
//! JPEG, PNG, WebP, BMP and the first frame of GIF, known by their content and not by their name.

use feedline_codec::{DecodeOptions, Mode, Picture, decode_into, read_header};
use serde::{Deserialize, Serialize};

use super::{NamedOp, On, Op, OpError};
use crate::batch::{Buffer, FieldError, FieldTypes, Kind, Memory, PixelKind, Pixels, Sample, Value};
use crate::engine::Workspace;
use crate::order::Draw;
use crate::plan::CheckError;

/// Decodes pictures.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DecodeImage {
    #[serde(default)]
    on: On,
    /// Turn the picture as its EXIF orientation says.
    #[serde(default = "yes")]
    exif: bool,
    #[serde(default)]
    mode: PictureMode,
    /// Pictures with more pixels are refused before memory is taken.
    #[serde(default = "default_max_pixels")]
    max_pixels: u64,
}

/// What a picture is decoded to.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum PictureMode {
    /// A mask for fields named `mask` or `..._mask`, else RGB.
    #[default]
    Auto,
    Rgb,
    Grey,
    /// One channel of labels: palette index or grey value, never blended.
    Mask,
}

fn yes() -> bool {
    true
}

/// Pillow's limit, at which it refuses a picture as a decompression bomb.
fn default_max_pixels() -> u64 {
    178_956_970
}

impl DecodeImage {
    fn mode_of(&self, field: &str) -> Mode {
        match self.mode {
            PictureMode::Auto if field == "mask" || field.ends_with("_mask") => Mode::Mask,
            PictureMode::Auto | PictureMode::Rgb => Mode::Rgb,
            PictureMode::Grey => Mode::Grey,
            PictureMode::Mask => Mode::Mask,
        }
    }
}

impl NamedOp for DecodeImage {
    const NAME: &'static str = "DecodeImage";
}

impl Op for DecodeImage {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        for (field, kind) in self.on.kinds(Self::NAME, types)? {
            if kind != Kind::Bytes {
                return Err(CheckError::Needs { op: Self::NAME, needs: "encoded bytes", field, has: kind });
            }
            let mode = self.mode_of(&field);
            let channels = if matches!(mode, Mode::Rgb) { 3 } else { 1 };
            let is_mask = matches!(mode, Mode::Mask);
            types.set(&field, Kind::Pixels(PixelKind { channels, height: None, width: None, is_mask }));
        }
        Ok(())
    }

    fn apply(&self, sample: &mut Sample<'_>, _: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        for name in self.on.names() {
            let encoded = match sample.take(name)? {
                Value::Bytes(memory) => memory,
                other => {
                    let (has, needs) = (other.describe(), "encoded bytes");
                    return Err(FieldError::Kind { name: name.to_owned(), has, needs }.into());
                }
            };
            let mode = self.mode_of(name);
            let header = read_header(&encoded)?;
            let channels = if matches!(mode, Mode::Rgb) { 3 } else { 1 };
            let area = u64::from(header.width) * u64::from(header.height);
            let bytes = area.min(self.max_pixels) as usize * usize::from(channels);
            if area <= self.max_pixels {
                workspace.reserve(header.decode_bytes(channels, self.exif) as usize)?;
            }
            let mut picture = Picture { width: 0, height: 0, channels: 0, pixels: workspace.spare_memory(bytes) };
            let cancel = workspace.cancel().clone();
            let options = DecodeOptions {
                mode,
                exif: self.exif,
                max_pixels: self.max_pixels,
                fast: None,
                cancel: &|| cancel.is_cancelled(),
            };
            decode_into(&encoded, &options, &mut picture)?;
            let Picture { width, height, channels, pixels } = picture;
            let len = width as usize * height as usize * usize::from(channels);
            let memory = Memory::Heap(Buffer::reusing(pixels, len).expect("the decoder has made room"));
            sample.give_back(name, encoded, workspace);
            let is_mask = matches!(mode, Mode::Mask);
            sample.put(name, Value::Pixels(Pixels::packed(memory, width, height, channels, is_mask)));
        }
        Ok(())
    }
}
