//! Converts the channels of a file to the requested ones, like Pillow's `convert`.
//!
//! In: a packed row in the file's layout. Out: a packed row of 1 or 3 channels. Alpha is dropped, not blended.

/// The layout of a decoded row with 8 bits a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Grey,
    GreyAlpha,
    Rgb,
    Rgba,
    /// Inverted, as Adobe writes it.
    Cmyk,
}

impl Layout {
    pub(crate) fn channels(self) -> usize {
        match self {
            Self::Grey => 1,
            Self::GreyAlpha => 2,
            Self::Rgb => 3,
            Self::Rgba | Self::Cmyk => 4,
        }
    }
}

/// Rewrites `source` as RGB.
pub(crate) fn to_rgb(layout: Layout, source: &[u8], target: &mut [u8]) {
    let target = target.as_chunks_mut::<3>().0;
    match layout {
        Layout::Grey => target.iter_mut().zip(source).for_each(|(rgb, &grey)| *rgb = [grey; 3]),
        Layout::GreyAlpha => {
            target.iter_mut().zip(source.as_chunks::<2>().0).for_each(|(rgb, &[grey, _])| *rgb = [grey; 3]);
        }
        Layout::Rgb => target.copy_from_slice(source.as_chunks::<3>().0),
        Layout::Rgba => {
            target.iter_mut().zip(source.as_chunks::<4>().0).for_each(|(rgb, &[r, g, b, _])| *rgb = [r, g, b]);
        }
        Layout::Cmyk => {
            target.iter_mut().zip(source.as_chunks::<4>().0).for_each(|(rgb, cmyk)| *rgb = rgb_of_cmyk(*cmyk));
        }
    }
}

/// Rewrites `source` as grey.
pub(crate) fn to_grey(layout: Layout, source: &[u8], target: &mut [u8]) {
    match layout {
        Layout::Grey => target.copy_from_slice(source),
        Layout::GreyAlpha => {
            target.iter_mut().zip(source.as_chunks::<2>().0).for_each(|(grey, &[value, _])| *grey = value);
        }
        Layout::Rgb => {
            target.iter_mut().zip(source.as_chunks::<3>().0).for_each(|(grey, rgb)| *grey = grey_of_rgb(*rgb));
        }
        Layout::Rgba => {
            target
                .iter_mut()
                .zip(source.as_chunks::<4>().0)
                .for_each(|(grey, &[r, g, b, _])| *grey = grey_of_rgb([r, g, b]));
        }
        Layout::Cmyk => {
            target
                .iter_mut()
                .zip(source.as_chunks::<4>().0)
                .for_each(|(grey, cmyk)| *grey = grey_of_rgb(rgb_of_cmyk(*cmyk)));
        }
    }
}

/// Pillow's luma: 0.299 R + 0.587 G + 0.114 B in 16-bit fixed point, rounded.
fn grey_of_rgb([r, g, b]: [u8; 3]) -> u8 {
    ((u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16) as u8
}

/// Pillow's `convert("RGB")` of an Adobe file: the stored values are 255 minus the ink.
fn rgb_of_cmyk([c, m, y, k]: [u8; 4]) -> [u8; 3] {
    [c, m, y].map(|stored| {
        // Division by 255 with rounding, as Pillow's MULDIV255: (x + 128 + ((x + 128) >> 8)) >> 8.
        let product = u32::from(255 - stored) * u32::from(k) + 128;
        let ink = ((product >> 8) + product) >> 8;
        k.saturating_sub(ink as u8)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alpha_is_dropped_and_not_blended() {
        let mut rgb = [0; 6];
        to_rgb(Layout::Rgba, &[1, 2, 3, 0, 4, 5, 6, 255], &mut rgb);
        assert_eq!(rgb, [1, 2, 3, 4, 5, 6]);
        to_rgb(Layout::GreyAlpha, &[7, 0, 8, 255], &mut rgb);
        assert_eq!(rgb, [7, 7, 7, 8, 8, 8]);
    }

    #[test]
    fn no_ink_is_white_and_full_black_ink_is_black() {
        assert_eq!(rgb_of_cmyk([255; 4]), [255; 3]);
        assert_eq!(rgb_of_cmyk([255, 255, 255, 0]), [0; 3]);
        assert_eq!(rgb_of_cmyk([0, 255, 255, 255]), [0, 255, 255]);
    }

    #[test]
    fn grey_of_grey_is_unchanged() {
        assert!((0..=255).all(|value| grey_of_rgb([value; 3]) == value));
    }
}
