//! A crop of a picture, without a copy.
//!
//! In: bytes of a picture and the place of a crop. Out: rows. No row ever reaches outside `pixels`; a view whose sizes
//! contradict its bytes is a bug of the caller and panics with both numbers.

/// A crop of a picture; `pixels` starts at the first pixel of the crop.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Bytes from the first pixel of the crop to at least its last pixel.
    pub pixels: &'a [u8],
    /// Pixels in a row of the crop.
    pub width: u32,
    /// Rows of the crop.
    pub height: u32,
    /// Bytes in a pixel: 1 or 3.
    pub channels: u8,
    /// Bytes from one row to the next: a row of the parent picture.
    pub stride: usize,
}

impl<'a> View<'a> {
    /// A whole, tightly packed picture.
    pub fn packed(pixels: &'a [u8], width: u32, height: u32, channels: u8) -> Self {
        Self { pixels, width, height, channels, stride: width as usize * usize::from(channels) }
    }

    /// Bytes in one row of the crop.
    pub(crate) fn row_bytes(&self) -> usize {
        self.width as usize * usize::from(self.channels)
    }

    /// Whether there is no pixel in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0
    }

    /// The crop of this view at (`left`, `top`).
    #[must_use]
    pub fn crop(&self, left: u32, top: u32, width: u32, height: u32) -> View<'a> {
        assert!(
            u64::from(left) + u64::from(width) <= u64::from(self.width)
                && u64::from(top) + u64::from(height) <= u64::from(self.height),
            "crop {width} x {height} at ({left}, {top}) is not inside a view of {} x {}",
            self.width,
            self.height
        );
        let start = top as usize * self.stride + left as usize * usize::from(self.channels);
        let pixels = self.pixels.get(start..).unwrap_or_default();
        View { pixels, width, height, ..*self }
    }

    /// The rows of the crop, each `row_bytes()` long.
    pub fn rows(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.check();
        self.rows_from(0)
    }

    /// The rows from `first` on. Costs the same for each `first`, which `rows().skip(first)` does not.
    pub(crate) fn rows_from(&self, first: u32) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (pixels, stride, row_bytes) = (self.pixels, self.stride, self.row_bytes());
        let rows = if self.is_empty() { 0 } else { self.height as usize };
        (first as usize..rows).map(move |y| &pixels[y * stride..y * stride + row_bytes])
    }

    /// Whether the rows follow each other without a gap.
    pub(crate) fn is_packed(&self) -> bool {
        self.stride == self.row_bytes()
    }

    pub(crate) fn check(&self) {
        assert!(matches!(self.channels, 1 | 3), "a view has 1 or 3 channels, not {}", self.channels);
        if !self.is_empty() {
            let row_bytes = self.row_bytes();
            assert!(self.stride >= row_bytes, "rows of {row_bytes} bytes do not fit a stride of {}", self.stride);
            let needed = (self.height as usize - 1).checked_mul(self.stride).and_then(|sum| sum.checked_add(row_bytes));
            assert!(
                needed.is_some_and(|needed| self.pixels.len() >= needed),
                "a view of {} x {} x {} with stride {} does not fit its {} bytes",
                self.width,
                self.height,
                self.channels,
                self.stride,
                self.pixels.len()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crop_holds_the_pixels_of_its_place() {
        let pixels: Vec<u8> = (0..60).collect();
        let crop = View::packed(&pixels, 5, 4, 3).crop(1, 2, 2, 2);
        assert_eq!(crop.rows().collect::<Vec<_>>(), [&pixels[33..39], &pixels[48..54]]);
    }

    #[test]
    #[should_panic(expected = "does not fit its 59 bytes")]
    fn a_view_larger_than_its_bytes_is_refused() {
        assert_eq!(View::packed(&[0; 59], 5, 4, 3).rows().count(), 4);
    }
}
