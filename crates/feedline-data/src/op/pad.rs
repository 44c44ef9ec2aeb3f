//! Pads a picture, as torchvision's `pad`.

use serde::{Deserialize, Serialize};

use super::OpError;
use crate::batch::kind::pixel_shape;
use crate::batch::{Pixels, Sample};
use crate::dtype::Dtype;
use crate::memory::Workspace;

/// The content of the padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PaddingMode {
    /// A constant value.
    #[default]
    Constant,
    /// The nearest pixel of the edge.
    Edge,
    /// The picture mirrored, without its edge.
    Reflect,
    /// The picture mirrored, with its edge.
    Symmetric,
}

/// Number of pixels to add on each side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Padding {
    pub left: u32,
    pub top: u32,
    pub right: u32,
    pub bottom: u32,
}

impl Padding {
    pub(super) fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// The padded picture, in packed memory.
pub(super) fn pad<'s>(
    sample: &mut Sample<'s>,
    name: &str,
    source: Pixels<'s>,
    padding: Padding,
    mode: PaddingMode,
    fill: u8,
    workspace: &mut Workspace,
) -> Result<Pixels<'s>, OpError> {
    let width = source.width + padding.left + padding.right;
    let height = source.height + padding.top + padding.bottom;
    let channels = usize::from(source.channels);
    let shape = pixel_shape(height as usize, width as usize, source.channels, source.is_mask);
    let mut memory = sample.output(name, Dtype::U8, &shape, workspace)?;
    let row_bytes = width as usize * channels;
    // The source column of each target column is the same for all rows.
    let columns: Vec<Option<u32>> = (0..width).map(|x| origin(x, padding.left, source.width, mode)).collect();
    for (y, row) in memory.chunks_exact_mut(row_bytes).enumerate() {
        let Some(from_y) = origin(y as u32, padding.top, source.height, mode) else {
            row.fill(fill);
            continue;
        };
        let from = &source.memory[source.offset + from_y as usize * source.stride..][..source.row_bytes()];
        for (pixel, from_x) in row.chunks_exact_mut(channels).zip(&columns) {
            match from_x {
                Some(x) => pixel.copy_from_slice(&from[*x as usize * channels..][..channels]),
                None => pixel.fill(fill),
            }
        }
    }
    let padded = Pixels::packed(memory, width, height, source.channels, source.is_mask);
    sample.give_back(name, source.memory, workspace);
    Ok(padded)
}

/// The row or column of the source at `at`. `None` outside the source in constant mode.
fn origin(at: u32, before: u32, len: u32, mode: PaddingMode) -> Option<u32> {
    let (at, len) = (i64::from(at) - i64::from(before), i64::from(len));
    let found = match mode {
        _ if (0..len).contains(&at) => at,
        PaddingMode::Constant => return None,
        PaddingMode::Edge => at.clamp(0, len - 1),
        PaddingMode::Reflect if len == 1 => 0,
        PaddingMode::Reflect => {
            // The mirrored sequence has period 2 (len - 1): 0 1 2 3 2 1 0 1 ...
            let folded = at.rem_euclid(2 * (len - 1));
            if folded < len { folded } else { 2 * (len - 1) - folded }
        }
        PaddingMode::Symmetric => {
            // With the edge repeated the period is 2 len: 0 1 2 3 3 2 1 0 0 1 ...
            let folded = at.rem_euclid(2 * len);
            if folded < len { folded } else { 2 * len - 1 - folded }
        }
    };
    Some(found as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_mirror_as_numpy_does() {
        let check = |mode, expected: [Option<u32>; 9]| {
            let found: Vec<_> = (0..9).map(|at| origin(at, 3, 3, mode)).collect();
            assert_eq!(found, expected, "{mode:?}");
        };
        let (a, b, c) = (Some(0), Some(1), Some(2));
        check(PaddingMode::Constant, [None, None, None, a, b, c, None, None, None]);
        check(PaddingMode::Edge, [a, a, a, a, b, c, c, c, c]);
        check(PaddingMode::Reflect, [b, c, b, a, b, c, b, a, b]);
        check(PaddingMode::Symmetric, [c, b, a, a, b, c, c, b, a]);
    }
}
