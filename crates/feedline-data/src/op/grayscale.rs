//! Converts to luminance, as torchvision's `Grayscale`.

use feedline_order::Draw;
use serde::{Deserialize, Serialize};
use serde_inline_default::serde_inline_default;

use super::{On, Op, OpError};
use crate::batch::{FieldTypes, Kind, PixelKind, Pixels, Sample, Value};
use crate::dtype::Dtype;
use crate::memory::Workspace;
use crate::op::CheckError;

/// Converts pictures to grey, with one channel or three equal ones.
#[serde_inline_default]
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grayscale {
    #[serde_inline_default(1)]
    num_output_channels: u8,
    #[serde(default)]
    on: On,
}

/// ITU-R 601-2 luma in fixed point, as Pillow computes it.
pub(super) fn luma(rgb: [u8; 3]) -> u8 {
    // 0.299, 0.587 and 0.114 times 2^16. Adding 2^15 rounds.
    ((u32::from(rgb[0]) * 19595 + u32::from(rgb[1]) * 38470 + u32::from(rgb[2]) * 7471 + 0x8000) >> 16) as u8
}

impl Op for Grayscale {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        if ![1, 3].contains(&self.num_output_channels) {
            let problem = format!("num_output_channels is {}; it must be 1 or 3", self.num_output_channels);
            return Err(CheckError::Parameter(problem));
        }
        self.on.change(types, "pixels", |kind| match *kind {
            Kind::Pixels(kind) if !kind.is_mask && !kind.is_deep => {
                Some(Kind::Pixels(PixelKind { channels: self.num_output_channels, ..kind }))
            }
            _ => None,
        })
    }

    fn apply(&self, sample: &mut Sample<'_>, _: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        for name in self.on.names() {
            let source = sample.take_pixels(name)?;
            let channels = usize::from(self.num_output_channels);
            let shape = [source.height as usize, source.width as usize, channels];
            let mut memory = sample.output(name, Dtype::U8, &shape, workspace)?;
            let rows = memory.chunks_exact_mut((source.width as usize * channels).max(1));
            for (y, row) in rows.enumerate() {
                let from = &source.memory[source.offset + y * source.stride..][..source.row_bytes()];
                for (out, pixel) in row.chunks_exact_mut(channels).zip(from.chunks_exact(source.channels.into())) {
                    // A pixel with one channel is grey already.
                    out.fill(if let [r, g, b] = *pixel { luma([r, g, b]) } else { pixel[0] });
                }
            }
            let grey = Pixels::packed(memory, source.width, source.height, self.num_output_channels, false);
            sample.give_back(name, source.memory, workspace);
            sample.put(name, Value::Pixels(grey));
        }
        Ok(())
    }
}
