//! Pads a picture, as torchvision's `pad`, and crops the result.

use std::ops::Range;

use feedline_codec::Rect;
use serde::{Deserialize, Serialize};

use super::{On, OpError};
use crate::batch::kind::pixel_shape;
use crate::batch::{Pixels, Sample, Value};
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

    /// Width and height of a picture with its padding.
    pub(super) fn padded(self, width: u32, height: u32) -> (u32, u32) {
        (width + self.left + self.right, height + self.top + self.bottom)
    }
}

/// The padding and its content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Border {
    pub padding: Padding,
    pub mode: PaddingMode,
    /// The value of the padding in constant mode.
    pub fill: u8,
}

/// Pads every field of `on` and crops it to `rect`, which lies in the padded picture. The rest of that picture is never made.
pub(super) fn pad_and_crop(
    sample: &mut Sample<'_>,
    on: &On,
    border: Border,
    rect: Rect,
    workspace: &mut Workspace,
) -> Result<(), OpError> {
    for name in on.names() {
        let source = sample.take_any_pixels(name)?;
        let shape = pixel_shape(rect.height as usize, rect.width as usize, source.channels, source.is_mask);
        let mut memory = sample.output(name, source.dtype(), &shape, workspace)?;
        match source.pixel_bytes() {
            1 => fill_part::<1>(&source, border, rect, &mut memory),
            3 => fill_part::<3>(&source, border, rect, &mut memory),
            // Both bytes of a channel are the fill value, which makes 65535 of 255.
            2 => fill_part::<2>(&source, border, rect, &mut memory),
            6 => fill_part::<6>(&source, border, rect, &mut memory),
            other => unreachable!("pixels have 1 or 3 channels of 1 or 2 bytes, not {other} bytes"),
        }
        let part = source.packed_like(memory, rect.width, rect.height);
        sample.give_back(name, source.memory, workspace);
        sample.put(name, Value::Pixels(part));
    }
    Ok(())
}

fn fill_part<const BYTES: usize>(source: &Pixels<'_>, border: Border, rect: Rect, target: &mut [u8]) {
    let Border { padding, mode, fill } = border;
    // Columns of the target from `start` to `end` are a run of source columns. Those beside it are padding.
    let start = padding.left.saturating_sub(rect.left).min(rect.width);
    let end = (padding.left + source.width).saturating_sub(rect.left).min(rect.width).max(start);
    let first = (rect.left + start).saturating_sub(padding.left).min(source.width) as usize;
    let beside = |columns: Range<u32>| -> Vec<Option<u32>> {
        columns.map(|x| origin(x + rect.left, padding.left, source.width, mode)).collect()
    };
    // The source column of each target column is the same for all rows.
    let (before, after) = (beside(0..start), beside(end..rect.width));
    let rows = target.as_chunks_mut::<BYTES>().0.chunks_exact_mut(rect.width as usize);
    for (y, row) in rows.enumerate() {
        let Some(from_y) = origin(y as u32 + rect.top, padding.top, source.height, mode) else {
            row.fill([fill; BYTES]);
            continue;
        };
        let from = &source.memory[source.offset + from_y as usize * source.stride..][..source.row_bytes()];
        let from = from.as_chunks::<BYTES>().0;
        let (left, rest) = row.split_at_mut(start as usize);
        let (middle, right) = rest.split_at_mut((end - start) as usize);
        middle.copy_from_slice(&from[first..][..middle.len()]);
        for (pixel, x) in left.iter_mut().zip(&before).chain(right.iter_mut().zip(&after)) {
            *pixel = x.map_or([fill; BYTES], |x| from[x as usize]);
        }
    }
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
    fn law_8_a_part_of_a_padded_picture_has_the_pixels_of_the_whole_one() {
        let bytes: Vec<u8> = (0..5 * 4 * 3).collect();
        let source = Pixels::packed(bytes.into(), 5, 4, 3, false);
        for mode in [PaddingMode::Constant, PaddingMode::Edge, PaddingMode::Reflect, PaddingMode::Symmetric] {
            let border = Border { padding: Padding { left: 3, top: 2, right: 4, bottom: 4 }, mode, fill: 9 };
            let (width, height) = border.padding.padded(5, 4);
            // Pixel by pixel.
            let whole: Vec<u8> = (0..height)
                .flat_map(|y| (0..width).map(move |x| (x, y)))
                .flat_map(|(x, y)| match (origin(x, 3, 5, mode), origin(y, 2, 4, mode)) {
                    (Some(x), Some(y)) => std::array::from_fn(|channel| ((y * 5 + x) * 3) as u8 + channel as u8),
                    _ => [9; 3],
                })
                .collect();
            for (left, top) in [(0, 0), (2, 1), (4, 3), (6, 5), (11, 9)] {
                for (part_width, part_height) in [(1, 1), (3, 5), (width - left, height - top)] {
                    let (part_width, part_height) = (part_width.min(width - left), part_height.min(height - top));
                    let rect = Rect { left, top, width: part_width, height: part_height };
                    let mut part = vec![0; (part_width * part_height * 3) as usize];
                    fill_part::<3>(&source, border, rect, &mut part);
                    for (y, row) in part.chunks_exact(part_width as usize * 3).enumerate() {
                        let at = (((top as usize + y) * width as usize) + left as usize) * 3;
                        assert_eq!(row, &whole[at..at + row.len()], "{mode:?} {rect:?} row {y}");
                    }
                }
            }
        }
    }

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
