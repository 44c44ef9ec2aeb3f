//! A grid of pictures, each in its own cell with a label below.
//!
//! Always true: all cells have the same size. Each picture fits completely into its cell: large ones are shrunk, small ones are
//! enlarged by an integer factor.

use anyhow::Result;
use feedline_codec::{Filter, Resampler, View};

use crate::font;
use crate::picture::Picture;

/// Channels of the drawing.
pub(crate) const CHANNELS: u8 = 3;
const RGB: usize = CHANNELS as usize;
/// Minimum and maximum side of a cell, without its label.
const SIDES: (usize, usize) = (96, 256);
/// Pixels between cells.
const GAP: usize = 8;
/// Rows for the label.
const LABEL: usize = font::HEIGHT + 6;
const BACKGROUND: u8 = 24;
const INK: u8 = 225;

/// The dimensions of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Cells in a row.
    pub columns: usize,
    /// Rows of cells.
    pub rows: usize,
    cell_width: usize,
    cell_height: usize,
}

impl Grid {
    /// A grid for these pictures, about as wide as high.
    pub(crate) fn new<'a>(pictures: impl ExactSizeIterator<Item = &'a Picture>) -> Self {
        let count = pictures.len().max(1);
        // The smallest square that holds all cells.
        let columns = (1..=count).find(|side| side * side >= count).unwrap_or(1);
        let (width, height) =
            pictures.fold((0, 0), |(width, height), picture| (width.max(picture.width), height.max(picture.height)));
        Self {
            columns,
            rows: count.div_ceil(columns),
            cell_width: width.clamp(SIDES.0, SIDES.1),
            cell_height: height.clamp(SIDES.0, SIDES.1),
        }
    }

    /// Columns of pixels.
    pub(crate) fn width(&self) -> usize {
        GAP + self.columns * (self.cell_width + GAP)
    }

    /// Rows of pixels.
    pub(crate) fn height(&self) -> usize {
        GAP + self.rows * (self.cell_height + LABEL + GAP)
    }

    /// Packed RGB pixels of the whole grid.
    pub(crate) fn draw(&self, labelled: &[(Picture, String)]) -> Result<Vec<u8>> {
        let mut canvas = Canvas { width: self.width(), pixels: vec![BACKGROUND; self.width() * self.height() * RGB] };
        let mut resampler = Resampler::new();
        for (number, (picture, label)) in labelled.iter().enumerate() {
            let left = GAP + number % self.columns * (self.cell_width + GAP);
            let top = GAP + number / self.columns * (self.cell_height + LABEL + GAP);
            let fitted = self.fit(picture, &mut resampler)?;
            let (right, down) = ((self.cell_width - fitted.width) / 2, (self.cell_height - fitted.height) / 2);
            canvas.put(&fitted, left + right, top + down);
            let text = font::cut(label, self.cell_width / font::WIDTH);
            // Cannot underflow, because `cut` has limited the text to the width of the cell.
            let indent = (self.cell_width - text.chars().count() * font::WIDTH) / 2;
            canvas.write(&text, left + indent, top + self.cell_height + LABEL - font::HEIGHT);
        }
        Ok(canvas.pixels)
    }

    fn fit(&self, picture: &Picture, resampler: &mut Resampler) -> Result<Picture> {
        // Rounded down to an integer, so that enlarged pixels stay square and sharp (nearest neighbour).
        let factor = (self.cell_width / picture.width).min(self.cell_height / picture.height);
        let (width, height, filter) = if factor >= 1 {
            (picture.width * factor, picture.height * factor, Filter::Nearest)
        } else {
            // The side that exceeds the cell by the larger factor decides. Compared by cross multiplication, without rounding.
            let is_wide = picture.width * self.cell_height > picture.height * self.cell_width;
            let (part, whole) =
                if is_wide { (self.cell_width, picture.width) } else { (self.cell_height, picture.height) };
            ((picture.width * part / whole).max(1), (picture.height * part / whole).max(1), Filter::Bilinear)
        };
        let view = View {
            pixels: &picture.pixels,
            width: picture.width as u32,
            height: picture.height as u32,
            channels: CHANNELS,
            stride: picture.width * RGB,
        };
        let mut pixels = vec![0; width * height * RGB];
        resampler.resize(view, &mut pixels, width as u32, height as u32, filter)?;
        Ok(Picture { width, height, pixels })
    }
}

struct Canvas {
    width: usize,
    pixels: Vec<u8>,
}

impl Canvas {
    fn put(&mut self, picture: &Picture, left: usize, top: usize) {
        for (number, row) in picture.pixels.chunks_exact(picture.width * RGB).enumerate() {
            let start = ((top + number) * self.width + left) * RGB;
            self.pixels[start..start + row.len()].copy_from_slice(row);
        }
    }

    fn write(&mut self, text: &str, left: usize, top: usize) {
        for (x, y) in font::pixels(text) {
            let start = ((top + y) * self.width + left + x) * RGB;
            self.pixels[start..start + RGB].fill(INK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(width: usize, height: usize, value: u8) -> Picture {
        Picture { width, height, pixels: vec![value; width * height * RGB] }
    }

    #[test]
    fn pictures_of_any_size_fit_and_keep_their_proportions() {
        for (width, height) in [(1, 1), (32, 32), (700, 100), (100, 900), (97, 95), (5000, 1)] {
            let picture = plain(width, height, 9);
            let grid = Grid::new([&picture].into_iter());
            let fitted = grid.fit(&picture, &mut Resampler::new()).unwrap();
            assert!(fitted.width <= grid.cell_width && fitted.height <= grid.cell_height, "{width}x{height}");
            if width.min(height) > 50 {
                let change = (fitted.width * height) as f64 / (fitted.height * width) as f64;
                assert!((change - 1.0).abs() < 0.05, "{width}x{height}: {change}");
            }
        }
    }

    #[test]
    fn cells_hold_their_picture_and_labels_are_drawn_below() {
        let labelled = [(plain(100, 100, 50), "a".to_owned()), (plain(100, 100, 90), "b".to_owned())];
        let grid = Grid::new(labelled.iter().map(|(picture, _)| picture));
        assert_eq!((grid.columns, grid.rows), (2, 1));
        let pixels = grid.draw(&labelled).unwrap();
        assert_eq!(pixels.len(), grid.width() * grid.height() * RGB);
        let at = |x: usize, y: usize| pixels[(y * grid.width() + x) * RGB];
        assert_eq!((at(GAP, GAP), at(GAP + 100 + GAP, GAP)), (50, 90));
        assert_eq!(at(0, 0), BACKGROUND);
        let band = &pixels[(GAP + 100) * grid.width() * RGB..];
        assert!(band.contains(&INK));
    }
}
