//! Resizes pictures, or computes a part of a resized picture.
//!
//! In: a [`View`]. Out: packed pixels of the requested size. When a picture gets smaller, bilinear and bicubic filters widen to avoid
//! aliasing, as in Pillow. A filter reads only pixels of the view, never those around it.
//!
//! Always true: the bytes are those of the crate `fast_image_resize` 6.1, with and without SIMD. A part has the bytes that the whole
//! result has at its place (law 8): windows and rounding are those of the whole.

mod blend;
#[cfg(target_arch = "aarch64")]
mod neon;
mod windows;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::ops::Range;

use crate::error::CodecError;
use crate::kernels::Simd;
use crate::memory::grow;
use crate::rect::Rect;
use crate::view::View;
use blend::{STRIP_ROWS, Strip, blend_columns, blend_rows};
use windows::{Kernel, Windows};

/// The interpolation method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Filter {
    /// The pixel at the centre, as Pillow's `NEAREST`; the filter for masks.
    Nearest,
    /// Linear, antialiased.
    Bilinear,
    /// Cubic with a = -0.5, antialiased.
    Bicubic,
}

/// How a whole picture is resized. Sizes are width and height.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resizing {
    /// The size of the picture.
    pub from: (u32, u32),
    /// The size of the result.
    pub to: (u32, u32),
    /// The interpolation method.
    pub filter: Filter,
}

impl Resizing {
    /// The pixels of the picture that a part of the result depends on. The part lies in the result, and the picture has pixels.
    pub fn source_rect(&self, part: Rect) -> Rect {
        assert!(part.is_inside(self.to.0, self.to.1), "{part:?} is not inside a result of {:?}", self.to);
        // The window of a filter contains the pixel that `Nearest` takes, whatever the rounding of its position.
        let kernel = if self.filter == Filter::Bicubic { Kernel::Cubic } else { Kernel::Linear };
        let columns = windows::source_range(self.from.0, self.to.0, part.left..part.right(), kernel);
        let rows = windows::source_range(self.from.1, self.to.1, part.top..part.bottom(), kernel);
        Rect { left: columns.start, top: rows.start, width: columns.end - columns.start, height: rows.end - rows.start }
    }
}

/// Resizes pictures. It keeps buffers for reuse, so each thread needs its own.
#[derive(Debug)]
pub struct Resampler {
    simd: Simd,
    columns: Windows,
    rows: Windows,
    strip: Strip,
    narrow: Vec<u8>,
    nearest: Vec<usize>,
}

impl Default for Resampler {
    fn default() -> Self {
        Self::new()
    }
}

impl Resampler {
    /// With the widest SIMD this machine has.
    pub fn new() -> Self {
        Self::with(Simd::detect())
    }

    /// Same bytes, slower; for tests.
    pub fn without_simd() -> Self {
        Self::with(Simd::none())
    }

    fn with(simd: Simd) -> Self {
        let (columns, rows, strip) = (Windows::default(), Windows::default(), Strip::default());
        Self { simd, columns, rows, strip, narrow: Vec::new(), nearest: Vec::new() }
    }

    /// Resizes `source` to `width` x `height` into `target`, tightly packed.
    pub fn resize(
        &mut self,
        source: View<'_>,
        target: &mut [u8],
        width: u32,
        height: u32,
        filter: Filter,
    ) -> Result<(), CodecError> {
        let resizing = Resizing { from: (source.width, source.height), to: (width, height), filter };
        let all = Rect::whole(source.width, source.height);
        self.resize_part(source, all, resizing, Rect::whole(width, height), target)
    }

    /// Computes `part` of a resized picture into `target`, tightly packed. `source` holds the pixels of the picture at `held`, which
    /// contains [`Resizing::source_rect`] of the part.
    pub fn resize_part(
        &mut self,
        source: View<'_>,
        held: Rect,
        resizing: Resizing,
        part: Rect,
        target: &mut [u8],
    ) -> Result<(), CodecError> {
        source.check();
        let Resizing { from, to, filter } = resizing;
        let channels = source.channels;
        let needed = part.width as usize * part.height as usize * usize::from(channels);
        assert!(
            target.len() == needed,
            "{} x {} x {channels} pixels need {needed} bytes, the target has {}",
            part.width,
            part.height,
            target.len()
        );
        if needed == 0 {
            return Ok(());
        }
        if source.is_empty() {
            let (width, height) = (source.width, source.height);
            return Err(CodecError::Shape { width, height, channels, reason: "there is no pixel to resize" });
        }
        assert!((source.width, source.height) == (held.width, held.height), "the view holds the pixels of {held:?}");
        assert!(held.is_inside(from.0, from.1), "{held:?} is not inside a picture of {from:?}");
        let needs = if from == to { part } else { resizing.source_rect(part) };
        assert!(held.contains(&needs), "{held:?} is in memory, but {needs:?} is needed");
        if from == to {
            let rows = source.crop(part.left - held.left, part.top - held.top, part.width, part.height);
            for (target, source) in target.chunks_exact_mut(rows.row_bytes()).zip(rows.rows()) {
                target.copy_from_slice(source);
            }
            return Ok(());
        }
        match (filter, channels) {
            (Filter::Nearest, 1) => self.nearest::<1>(source, held, resizing, part, target),
            (Filter::Nearest, _) => self.nearest::<3>(source, held, resizing, part, target),
            (Filter::Bilinear | Filter::Bicubic, _) => self.convolve(source, held, resizing, part, target)?,
        }
        Ok(())
    }

    /// Bilinear and bicubic filters work on rows and columns apart, and round in between.
    ///
    /// Cubic resizes each row first, then columns, as Pillow does: it overshoots and is clipped to 0..=255 between the two passes,
    /// so their order changes values, by up to 20. Bilinear starts with the columns, which is faster and changes values by 2 at most,
    /// as measured on photographs.
    fn convolve(
        &mut self,
        source: View<'_>,
        held: Rect,
        resizing: Resizing,
        part: Rect,
        target: &mut [u8],
    ) -> Result<(), CodecError> {
        let Resizing { from, to, filter } = resizing;
        let kernel = if filter == Filter::Bicubic { Kernel::Cubic } else { Kernel::Linear };
        let channels = usize::from(source.channels);
        let row_bytes = part.width as usize * channels;
        // A side that keeps its length is not filtered.
        let (changes_width, changes_height) = (from.0 != to.0, from.1 != to.1);
        let (mut from_columns, mut from_rows) = (part.left..part.right(), part.top..part.bottom());
        if changes_width {
            from_columns = self.columns.set(from.0, to.0, from_columns, kernel);
        }
        if changes_height {
            from_rows = self.rows.set(from.1, to.1, from_rows, kernel);
        }
        let source = source.crop(
            from_columns.start - held.left,
            from_rows.start - held.top,
            from_columns.end - from_columns.start,
            from_rows.end - from_rows.start,
        );
        if !changes_width {
            for (number, target) in target.chunks_exact_mut(row_bytes).enumerate() {
                blend_rows(source, &self.rows, number, target, self.simd);
            }
            return Ok(());
        }
        if changes_height && kernel == Kernel::Cubic {
            let mut narrow = std::mem::take(&mut self.narrow);
            let bytes = u64::from(source.height) * row_bytes as u64;
            self.narrow_rows(source, grow(&mut narrow, bytes)?);
            let rows = View::packed(&narrow, part.width, source.height, source.channels);
            for (number, target) in target.chunks_exact_mut(row_bytes).enumerate() {
                blend_rows(rows, &self.rows, number, target, self.simd);
            }
            self.narrow = narrow;
            return Ok(());
        }
        if !changes_height {
            self.narrow_rows(source, target);
            return Ok(());
        }
        // A few rows at a time, so that they are still in the cache for the second pass.
        for (number, target) in target.chunks_mut(row_bytes * STRIP_ROWS).enumerate() {
            let count = target.len() / row_bytes;
            for row in 0..count {
                let blended = self.strip.row_mut(row, source.row_bytes());
                blend_rows(source, &self.rows, number * STRIP_ROWS + row, blended, self.simd);
            }
            match channels {
                1 => blend_columns::<1>(&self.strip, &self.columns, target, self.simd),
                _ => blend_columns::<3>(&self.strip, &self.columns, target, self.simd),
            }
        }
        Ok(())
    }

    /// Resizes each row of `source` to the columns of the part.
    fn narrow_rows(&mut self, source: View<'_>, target: &mut [u8]) {
        let channels = usize::from(source.channels);
        let row_bytes = target.len() / source.height as usize;
        for (number, target) in target.chunks_mut(row_bytes * STRIP_ROWS).enumerate() {
            let count = target.len() / row_bytes;
            for (row, from) in source.rows_from((number * STRIP_ROWS) as u32).take(count).enumerate() {
                self.strip.row_mut(row, source.row_bytes()).copy_from_slice(from);
            }
            match channels {
                1 => blend_columns::<1>(&self.strip, &self.columns, target, self.simd),
                _ => blend_columns::<3>(&self.strip, &self.columns, target, self.simd),
            }
        }
    }

    /// Nearest neighbour. Positions are summed up step by step, as in Pillow, because products would differ in the last bit.
    fn nearest<const CHANNELS: usize>(
        &mut self,
        source: View<'_>,
        held: Rect,
        resizing: Resizing,
        part: Rect,
        target: &mut [u8],
    ) {
        let Resizing { from, to, .. } = resizing;
        self.nearest.clear();
        self.nearest.extend(centres(from.0, to.0, part.left..part.right()).map(|x| x - held.left as usize));
        let rows = target.chunks_exact_mut(part.width as usize * CHANNELS);
        for (row, y) in rows.zip(centres(from.1, to.1, part.top..part.bottom())) {
            let start = (y - held.top as usize) * source.stride;
            let (pixels, _) = source.pixels[start..start + source.row_bytes()].as_chunks::<CHANNELS>();
            for (pixel, &x) in row.as_chunks_mut::<CHANNELS>().0.iter_mut().zip(&self.nearest) {
                *pixel = pixels[x];
            }
        }
    }
}

/// For some of `to` target pixels, the source pixel that contains the centre of each.
fn centres(from: u32, to: u32, part: Range<u32>) -> impl Iterator<Item = usize> {
    let step = f64::from(from) / f64::from(to);
    let mut at = step * 0.5;
    let all = (0..to).map(move |_| {
        // Rounding errors of the sum could reach one pixel too far.
        let place = (at as usize).min(from as usize - 1);
        at += step;
        place
    });
    all.skip(part.start as usize).take((part.end - part.start) as usize)
}
