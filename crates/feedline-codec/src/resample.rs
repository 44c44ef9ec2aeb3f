//! Resizes pictures.
//!
//! In: a [`View`]. Out: packed pixels of the requested size. When a picture gets smaller, bilinear and bicubic filters widen to avoid
//! aliasing, as in Pillow. A filter reads only pixels of the view, never those around it.
//!
//! Always true: the bytes are the same with and without SIMD.

use fast_image_resize as fir;
use fast_image_resize::images::TypedImage;
use fast_image_resize::pixels::{InnerPixel, U8, U8x3};
use fast_image_resize::{CpuExtensions, FilterType, ImageView, PixelTrait, ResizeAlg, ResizeOptions};

use crate::error::CodecError;
use crate::memory::grow;
use crate::view::View;

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

/// Resizes pictures. It keeps buffers for reuse, so each thread needs its own.
#[derive(Debug, Default)]
pub struct Resampler {
    resizer: fir::Resizer,
    columns: Vec<usize>,
    row_pass: Vec<u8>,
}

impl Resampler {
    /// With the widest SIMD this machine has.
    pub fn new() -> Self {
        Self::default()
    }

    /// Same bytes, slower; for tests.
    pub fn without_simd() -> Self {
        let mut this = Self::default();
        // SAFETY: C5, no extension is always supported.
        unsafe { this.resizer.set_cpu_extensions(CpuExtensions::None) };
        this
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
        source.check();
        let channels = source.channels;
        let needed = width as usize * height as usize * usize::from(channels);
        assert!(
            target.len() == needed,
            "{width} x {height} x {channels} pixels need {needed} bytes, the target has {}",
            target.len()
        );
        if needed == 0 {
            return Ok(());
        }
        if source.is_empty() {
            let (width, height) = (source.width, source.height);
            return Err(CodecError::Shape { width, height, channels, reason: "there is no pixel to resize" });
        }
        if (source.width, source.height) == (width, height) {
            for (row, source) in target.chunks_exact_mut(source.row_bytes()).zip(source.rows()) {
                row.copy_from_slice(source);
            }
            return Ok(());
        }
        match (filter, channels) {
            (Filter::Nearest, 1) => self.nearest::<1>(source, target, width, height),
            (Filter::Nearest, _) => self.nearest::<3>(source, target, width, height),
            (Filter::Bilinear, 1) => self.convolve::<U8>(source, target, width, height, FilterType::Bilinear),
            (Filter::Bilinear, _) => self.convolve::<U8x3>(source, target, width, height, FilterType::Bilinear),
            (Filter::Bicubic, 1) => self.bicubic::<U8>(source, target, width, height)?,
            (Filter::Bicubic, _) => self.bicubic::<U8x3>(source, target, width, height)?,
        }
        Ok(())
    }

    /// Resizes rows first, then columns, as Pillow does. A cubic filter overshoots and is clipped to 0..=255 between the two
    /// passes, so their order changes values, by up to 20. `fast_image_resize` itself starts with columns, which is faster. For
    /// bilinear that changes values by 2 at most, as measured on photographs.
    fn bicubic<P: BytePixel>(
        &mut self,
        source: View<'_>,
        target: &mut [u8],
        width: u32,
        height: u32,
    ) -> Result<(), CodecError> {
        if source.width == width || source.height == height {
            self.convolve::<P>(source, target, width, height, FilterType::CatmullRom);
            return Ok(());
        }
        let channels = source.channels;
        // Taken out of `self`, because `convolve` borrows `self` too.
        let mut row_pass = std::mem::take(&mut self.row_pass);
        let narrow = grow(&mut row_pass, u64::from(width) * u64::from(source.height) * u64::from(channels))?;
        self.convolve::<P>(source, narrow, width, source.height, FilterType::CatmullRom);
        let narrow = View::packed(narrow, width, source.height, channels);
        self.convolve::<P>(narrow, target, width, height, FilterType::CatmullRom);
        self.row_pass = row_pass;
        Ok(())
    }

    fn convolve<P: BytePixel>(
        &mut self,
        source: View<'_>,
        target: &mut [u8],
        width: u32,
        height: u32,
        kind: FilterType,
    ) {
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(kind)).use_alpha(false);
        let rows = Rows::<P> { view: source, pixel: std::marker::PhantomData };
        let mut target = TypedImage::<P>::from_buffer(width, height, target).expect("its length was asserted");
        self.resizer.resize_typed(&rows, &mut target, &options).expect("without a crop, resizing cannot fail");
    }

    /// Nearest neighbour. Positions are summed up step by step, as in Pillow, because products would differ in the last bit.
    fn nearest<const CHANNELS: usize>(&mut self, source: View<'_>, target: &mut [u8], width: u32, height: u32) {
        self.columns.clear();
        self.columns.extend(centres(source.width, width));
        let rows = target.chunks_exact_mut(width as usize * CHANNELS);
        for (row, y) in rows.zip(centres(source.height, height)) {
            let start = y * source.stride;
            let (pixels, _) = source.pixels[start..start + source.row_bytes()].as_chunks::<CHANNELS>();
            for (pixel, &x) in row.as_chunks_mut::<CHANNELS>().0.iter_mut().zip(&self.columns) {
                *pixel = pixels[x];
            }
        }
    }
}

/// For each of `to` target pixels, the source pixel that contains its centre.
fn centres(from: u32, to: u32) -> impl Iterator<Item = usize> {
    let step = f64::from(from) / f64::from(to);
    let mut at = step * 0.5;
    (0..to).map(move |_| {
        // Rounding errors of the sum could reach one pixel too far.
        let place = (at as usize).min(from as usize - 1);
        at += step;
        place
    })
}

/// Pixels that are arrays of bytes, see C7.
trait BytePixel: PixelTrait + InnerPixel {}

impl BytePixel for U8 {}
impl BytePixel for U8x3 {}

/// Adapts a view to the interface of the resizer.
struct Rows<'a, P> {
    view: View<'a>,
    pixel: std::marker::PhantomData<P>,
}

// SAFETY: C7; `View::rows` gives slices of exactly `width` pixels.
unsafe impl<P: BytePixel> ImageView for Rows<'_, P> {
    type Pixel = P;

    fn width(&self) -> u32 {
        self.view.width
    }

    fn height(&self) -> u32 {
        self.view.height
    }

    fn iter_rows(&self, start_row: u32) -> impl Iterator<Item = &[P]> {
        self.view.rows_from(start_row).map(|row| {
            // SAFETY: C7.
            let (before, pixels, after) = unsafe { row.align_to::<P>() };
            debug_assert!(before.is_empty() && after.is_empty(), "pixels are arrays of bytes");
            pixels
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_extension_of_this_machine_gives_the_same_bytes() {
        #[cfg(target_arch = "x86_64")]
        let extensions = [CpuExtensions::Sse4_1, CpuExtensions::Avx2];
        #[cfg(target_arch = "aarch64")]
        let extensions = [CpuExtensions::Neon];
        let pixels: Vec<u8> = (0..83 * 61 * 3_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let source = View::packed(&pixels, 83, 61, 3);
        let resize = |resampler: &mut Resampler, width: u32, height: u32, filter| {
            let mut target = vec![0; (width * height * 3) as usize];
            resampler.resize(source, &mut target, width, height, filter).unwrap();
            target
        };
        for extension in extensions.into_iter().filter(CpuExtensions::is_supported) {
            let mut resampler = Resampler::new();
            // SAFETY: C5, filtered by what is supported.
            unsafe { resampler.resizer.set_cpu_extensions(extension) };
            for (width, height) in [(40, 30), (224, 224), (7, 90), (83, 10), (1, 1)] {
                for filter in [Filter::Bilinear, Filter::Bicubic] {
                    let expected = resize(&mut Resampler::without_simd(), width, height, filter);
                    assert!(resize(&mut resampler, width, height, filter) == expected, "{extension:?} {filter:?}");
                }
            }
        }
    }
}
