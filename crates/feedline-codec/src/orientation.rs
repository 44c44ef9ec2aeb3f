//! Reads and applies the EXIF orientation.
//!
//! In: an EXIF block, or stored pixels. Out: an [`Orientation`], or upright pixels. An unreadable orientation counts as none: it is
//! a hint, and most pictures have none.

use crate::kernels::{flip_horizontal, flip_vertical};
use crate::rect::Rect;

/// An EXIF orientation, 1 to 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Orientation(u8);

impl Orientation {
    /// The picture is stored upright.
    pub const IDENTITY: Self = Self(1);

    /// The EXIF number 1 to 8; any other number is no orientation.
    pub fn from_exif(value: u16) -> Option<Self> {
        u8::try_from(value).ok().filter(|value| (1..=8).contains(value)).map(Self)
    }

    /// The EXIF number.
    pub fn exif(self) -> u8 {
        self.0
    }

    /// Whether a row of the stored picture is a column of the seen one.
    pub(crate) fn swaps_sides(self) -> bool {
        self.0 >= 5
    }

    /// Width and height as seen, from those stored.
    pub fn seen_size(self, width: u32, height: u32) -> (u32, u32) {
        if self.swaps_sides() { (height, width) } else { (width, height) }
    }

    /// The orientation that undoes it.
    pub(crate) fn inverse(self) -> Self {
        match self.0 {
            // Rotations by 90 degrees are each other's inverse. All other orientations are their own.
            6 => Self(8),
            8 => Self(6),
            _ => self,
        }
    }

    /// Where a rectangle of the stored picture of this size is seen.
    pub(crate) fn seen_rect(self, rect: Rect, width: u32, height: u32) -> Rect {
        let (mirrored_left, mirrored_top) = (width - rect.right(), height - rect.bottom());
        let (left, top) = match self.0 {
            2 => (mirrored_left, rect.top),
            3 => (mirrored_left, mirrored_top),
            4 => (rect.left, mirrored_top),
            5 => (rect.top, rect.left),
            6 => (mirrored_top, rect.left),
            7 => (mirrored_top, mirrored_left),
            8 => (rect.top, mirrored_left),
            _ => (rect.left, rect.top),
        };
        let (width, height) = self.seen_size(rect.width, rect.height);
        Rect { left, top, width, height }
    }

    /// Reads a TIFF block, as it is in JPEG's APP1 after `Exif\0\0`, PNG's eXIf and WebP's EXIF.
    pub(crate) fn from_tiff(block: &[u8]) -> Self {
        // Some writers put JPEG's prefix into the chunks of other formats too.
        let tiff = block.strip_prefix(b"Exif\0\0").unwrap_or(block);
        image::metadata::Orientation::from_exif_chunk(tiff)
            .map_or(Self::IDENTITY, |orientation| Self(orientation.to_exif()))
    }

    /// Turns tightly packed `pixels` of the stored size upright. `other` is a second buffer, used if sides are swapped. Both are
    /// at least as long as the picture.
    pub(crate) fn apply(self, pixels: &mut Vec<u8>, other: &mut Vec<u8>, width: u32, height: u32, channels: u8) {
        let len = width as usize * height as usize * usize::from(channels);
        if self.swaps_sides() {
            let (source, target) = (&pixels[..len], &mut other[..len]);
            match channels {
                1 => transpose::<1>(source, target, width as usize, height as usize),
                2 => transpose::<2>(source, target, width as usize, height as usize),
                6 => transpose::<6>(source, target, width as usize, height as usize),
                _ => transpose::<3>(source, target, width as usize, height as usize),
            }
            std::mem::swap(pixels, other);
        }
        let (width, height) = self.seen_size(width, height);
        // After a transposition (5), turning right (6) mirrors left and right, turning left (8) up and down.
        if matches!(self.0, 2 | 3 | 6 | 7) {
            flip_horizontal(&mut pixels[..len], width, height, channels);
        }
        if matches!(self.0, 3 | 4 | 7 | 8) {
            flip_vertical(&mut pixels[..len], width, height, channels);
        }
    }
}

/// Swaps rows and columns, in squares that fit the cache.
fn transpose<const CHANNELS: usize>(source: &[u8], target: &mut [u8], width: usize, height: usize) {
    const SIDE: usize = 16;
    let (source, _) = source.as_chunks::<CHANNELS>();
    let (target, _) = target.as_chunks_mut::<CHANNELS>();
    for top in (0..height).step_by(SIDE) {
        for left in (0..width).step_by(SIDE) {
            for x in left..width.min(left + SIDE) {
                for y in top..height.min(top + SIDE) {
                    target[x * height + y] = source[y * width + x];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The letters a to f, stored in two rows of three, as seen under each orientation.
    #[test]
    fn each_orientation_puts_an_asymmetric_picture_upright() {
        let seen = ["abc/def", "cba/fed", "fed/cba", "def/abc", "ad/be/cf", "da/eb/fc", "fc/eb/da", "cf/be/ad"];
        for (exif, seen) in (1..).zip(seen) {
            for channels in [1_u8, 3] {
                let spread = |letters: &[u8]| -> Vec<u8> {
                    letters.iter().flat_map(|&letter| vec![letter; usize::from(channels)]).collect()
                };
                let mut pixels = spread(b"abcdef");
                let mut other = vec![0; pixels.len()];
                let orientation = Orientation::from_exif(exif).unwrap();
                orientation.apply(&mut pixels, &mut other, 3, 2, channels);
                let rows: Vec<u8> = seen.bytes().filter(|&letter| letter != b'/').collect();
                assert_eq!(pixels, spread(&rows), "orientation {exif}, {channels} channels");
                let width = seen.find('/').unwrap() as u32;
                assert_eq!(orientation.seen_size(3, 2).0, width);
            }
        }
    }

    #[test]
    fn numbers_outside_1_to_8_are_no_orientation() {
        assert!([0, 9, 255, 256, u16::MAX].iter().all(|&value| Orientation::from_exif(value).is_none()));
        assert_eq!(Orientation::from_tiff(b"II*\0\xff\xff\xff\xff"), Orientation::IDENTITY);
    }
}
