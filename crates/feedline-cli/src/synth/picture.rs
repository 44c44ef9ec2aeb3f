//! Generates a picture that costs a codec as much as a photograph, and whose class a small classifier can learn.
//!
//! In: a seed, a number, a class, and bounds of the size. Out: the bytes of a JPEG. A picture depends on nothing else, in
//! particular not on the thread.
//!
//! The class determines a range of hues, and the direction and scale of the texture. Each picture draws from this range, which
//! overlaps with those of neighbouring classes. Like a photograph, it has detail at all scales with a 1/f spectrum, sharp and
//! blurred parts, soft edges, and grain.

use feedline_codec::{CodecError, Subsampling, encode_jpeg};
use feedline_order::random::mix;

use super::noise::{Direction, Lattice, LatticeFrame, Numbers, smooth};
use super::shape::Shape;

/// Separates these random numbers from other uses of the same seed.
const PURPOSE: u64 = 0x5e_ed_0f_91_c7;
/// Distance between two points of the coarse fields, in pixels.
const COARSE: usize = 4;
/// Fraction of grey pictures, and of pictures without chroma subsampling among the others.
const GREY: f32 = 0.03;
const FULL_CHROMA: f32 = 0.2;

/// The settings of a set of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    /// The seed.
    pub seed: u64,
    /// Number of classes.
    pub classes: u32,
    /// Shortest and longest side.
    pub sides: (u32, u32),
    /// JPEG quality, 1 to 100.
    pub quality: u8,
}

/// Red, green, blue, from 0 to 1 as displayed.
pub(super) type Colour = [f32; 3];

impl Style {
    /// The class of a picture.
    pub(crate) fn class_of(&self, number: u64) -> u32 {
        (number % u64::from(self.classes)) as u32
    }

    /// The file of picture `number`.
    pub(crate) fn jpeg(&self, number: u64) -> Result<Vec<u8>, CodecError> {
        let mut numbers = Numbers::new(mix(mix(self.seed) ^ PURPOSE), number);
        let (width, height) = self.size(&mut numbers);
        let subsampling = match numbers.unit() {
            kind if kind < GREY => Subsampling::Grey,
            kind if kind < GREY + (1.0 - GREY) * FULL_CHROMA => Subsampling::S444,
            _ => Subsampling::S420,
        };
        let theme = Theme::new(self.class_of(number), self.classes, &mut numbers);
        let pixels = paint(&theme, width as usize, height as usize, &mut numbers);
        if subsampling == Subsampling::Grey {
            let (rgb, _) = pixels.as_chunks::<3>();
            // Rec. 601 luma in 8-bit fixed point: 77 + 150 + 29 = 256.
            let luma = |&[r, g, b]: &[u8; 3]| ((u32::from(r) * 77 + u32::from(g) * 150 + u32::from(b) * 29) >> 8) as u8;
            let grey: Vec<u8> = rgb.iter().map(luma).collect();
            return encode_jpeg(&grey, width, height, 1, self.quality, subsampling);
        }
        encode_jpeg(&pixels, width, height, 3, self.quality, subsampling)
    }

    /// The RGB pixels of a square version of picture `number`.
    pub(crate) fn square(&self, number: u64, side: u32) -> Vec<u8> {
        let mut numbers = Numbers::new(mix(mix(self.seed) ^ PURPOSE), number);
        let theme = Theme::new(self.class_of(number), self.classes, &mut numbers);
        paint(&theme, side as usize, side as usize, &mut numbers)
    }

    /// Width and height: mostly landscape, in the proportions of cameras.
    fn size(&self, numbers: &mut Numbers) -> (u32, u32) {
        const PROPORTIONS: [f32; 6] = [1.0, 1.25, 4.0 / 3.0, 4.0 / 3.0, 1.5, 16.0 / 9.0];
        let (shortest, longest) = (self.sides.0 as f32, self.sides.1 as f32);
        let proportion = PROPORTIONS[(numbers.unit() * PROPORTIONS.len() as f32) as usize];
        // The longer side starts at about a third of the range, so that the shorter one can be `shortest`.
        let long = numbers.between(shortest + (longest - shortest) * 0.36, longest + 1.0).floor();
        let short = (long / proportion).floor().max(shortest).min(long);
        let (long, short) = ((long as u32).clamp(self.sides.0, self.sides.1), short as u32);
        if numbers.happens(0.3) { (short, long) } else { (long, short) }
    }
}

/// The appearance of one picture.
struct Theme {
    sky: Colour,
    ground: Colour,
    accent: Colour,
    along: Direction,
    stretch: f32,
    cell: f32,
    /// How much stronger the texture is in each channel.
    tint: Colour,
    /// How much fine detail there is.
    detail: f32,
    grain: f32,
}

impl Theme {
    fn new(class: u32, classes: u32, numbers: &mut Numbers) -> Self {
        let place = class as f32 / classes as f32;
        // Classes with similar hues get different directions and scales.
        let scale_place = (place * 3.0 + 0.37) - (place * 3.0 + 0.37).floor();
        let turn = place * 2.0 + 0.12 * numbers.around();
        let hue = place + 0.75 / classes.max(4) as f32 * numbers.around();
        let other_hue = hue + 0.5 + 0.25 * numbers.around();
        Self {
            sky: colour(hue, numbers.between(0.15, 0.6), numbers.between(0.45, 0.95)),
            ground: colour(hue + 0.08 * numbers.around(), numbers.between(0.2, 0.7), numbers.between(0.2, 0.7)),
            accent: colour(other_hue, numbers.between(0.3, 0.8), numbers.between(0.3, 0.9)),
            along: Direction::at(turn),
            stretch: numbers.between(1.5, 4.0),
            cell: 40.0 + 80.0 * scale_place + 20.0 * numbers.around(),
            tint: [0.5 * numbers.around(), 0.0, 0.5 * numbers.around()],
            detail: numbers.between(1.5, 3.0),
            grain: numbers.between(0.04, 0.095),
        }
    }
}

/// Converts HSV to RGB. The hue is in turns of the colour circle.
pub(super) fn colour(hue: f32, saturation: f32, value: f32) -> Colour {
    let sector = (hue - hue.floor()) * 6.0;
    let channel = |offset: f32| {
        // Modulo 6, for negative numbers too. This is the branch-free HSV formula f(n) with n = 5, 3, 1.
        let place = (offset + sector) - ((offset + sector) / 6.0).floor() * 6.0;
        value - value * saturation * place.min(4.0 - place).clamp(0.0, 1.0)
    };
    [channel(5.0), channel(3.0), channel(1.0)]
}

/// The pixels, packed RGB.
fn paint(theme: &Theme, width: usize, height: usize, numbers: &mut Numbers) -> Vec<u8> {
    let lattice = Lattice::new(numbers);
    let mut frame = |cell: f32, stretch: f32| LatticeFrame {
        along: theme.along,
        stretch,
        cell,
        origin: (numbers.between(0.0, 64.0), numbers.between(0.0, 64.0)),
    };
    // Octaves from large to small, each with about half the amplitude of the one before (1/f).
    let coarse = [1.0, 0.5, 0.27, 0.14].map(|factor| (frame(theme.cell * factor, theme.stretch), 0.5 * factor));
    let focus = frame(theme.cell * 2.2, 1.0);
    let blend = frame(theme.cell * 3.0, 1.3);
    let fine = [(7.0, 0.18), (3.4, 0.23), (1.7, 0.32)].map(|(cell, amplitude)| {
        let stretch = 1.0 + (theme.stretch - 1.0) * 0.6;
        (frame(cell, stretch), amplitude * theme.detail)
    });
    let light = Direction::at(numbers.unit());
    let horizon = numbers.between(0.25, 0.75);
    let shapes: Vec<Shape> = (0..3 + (numbers.unit() * 6.0) as usize)
        .map(|_| Shape::new(numbers, width as f32, height as f32, theme.accent))
        .collect();
    let grain_key = numbers.bits();

    let relief = SmoothField::new(&lattice, width, height, &coarse);
    let focus = SmoothField::new(&lattice, width, height, &[(focus, 1.0)]);
    let blend = SmoothField::new(&lattice, width, height, &[(blend, 1.0)]);
    let (mut relief_row, mut focus_row, mut blend_row) = (vec![0.0; width], vec![0.0; width], vec![0.0; width]);
    let mut texture_row = vec![0.0; width];
    let mut row: Vec<Colour> = vec![[0.0; 3]; width];
    let mut pixels = Vec::with_capacity(width * height * 3);
    let side = width.max(height) as f32;
    for y in 0..height {
        relief.read_row(y, &mut relief_row);
        focus.read_row(y, &mut focus_row);
        blend.read_row(y, &mut blend_row);
        texture_row.fill(0.0);
        for (frame, amplitude) in &fine {
            lattice.add_row(&mut texture_row, (0.0, y as f32), 1.0, frame, *amplitude);
        }
        for x in 0..width {
            // Simulates a limited depth of field: fine texture is weaker out of focus.
            let sharpness = smooth((0.74 + 1.3 * focus_row[x]).clamp(0.3, 1.0));
            let texture = texture_row[x] * sharpness;
            // Soft limit, so that strong texture does not become black and white specks.
            texture_row[x] = texture / (1.0 + 0.7 * texture.abs());
            let down = y as f32 / height as f32;
            // The blend from sky to ground, with an irregular horizon.
            let share = smooth(((down - horizon) * 3.0 + 0.5 + 0.9 * blend_row[x]).clamp(0.0, 1.0));
            let across = (x as f32 * light.x + y as f32 * light.y) / side;
            let brightness = 0.85 + 0.3 * across + 0.55 * relief_row[x] * (0.4 + 0.6 * share) + texture_row[x];
            for (channel, value) in row[x].iter_mut().enumerate() {
                let (sky, ground) = (theme.sky[channel], theme.ground[channel]);
                *value = (sky + share * (ground - sky)) * (brightness + theme.tint[channel] * texture_row[x]);
            }
        }
        for shape in &shapes {
            shape.draw_row(&mut row, y, &texture_row, &relief_row);
        }
        develop(&row, theme.grain, mix(grain_key ^ y as u64), &mut pixels);
    }
    pixels
}

/// A smooth field, computed at every fourth pixel and interpolated linearly.
struct SmoothField {
    columns: usize,
    values: Vec<f32>,
}

impl SmoothField {
    fn new(lattice: &Lattice, width: usize, height: usize, octaves: &[(LatticeFrame, f32)]) -> Self {
        // One point more on each side, so that interpolation never reads outside.
        let (columns, rows) = (width / COARSE + 2, height / COARSE + 2);
        let mut values = vec![0.0; columns * rows];
        for (number, row) in values.chunks_exact_mut(columns).enumerate() {
            for (frame, amplitude) in octaves {
                lattice.add_row(row, (0.0, (number * COARSE) as f32), COARSE as f32, frame, *amplitude);
            }
        }
        Self { columns, values }
    }

    fn read_row(&self, y: usize, target: &mut [f32]) {
        // Two neighbouring rows of the coarse field.
        let (above, below) = self.values[y / COARSE * self.columns..].split_at(self.columns);
        let down = (y % COARSE) as f32 / COARSE as f32;
        let at = |column: usize| above[column] + down * (below[column] - above[column]);
        for (number, target) in target.chunks_mut(COARSE).enumerate() {
            let (left, right) = (at(number), at(number + 1));
            for (step, value) in target.iter_mut().enumerate() {
                *value = left + (right - left) * (step as f32 / COARSE as f32);
            }
        }
    }
}

/// Converts colours to bytes and adds grain: common grain for all channels, and weaker grain for single ones.
fn develop(row: &[Colour], grain: f32, key: u64, pixels: &mut Vec<u8>) {
    for (x, colour) in row.iter().enumerate() {
        let bits = mix(key.wrapping_add(x as u64));
        let piece = |shift: u32| ((bits >> shift) & 0xffff) as f32 / 32768.0 - 1.0;
        // The sum of two uniform numbers has a triangular distribution, which is closer to film grain.
        let common = (piece(0) + piece(16)) * grain;
        let own = [piece(32), 0.0, piece(48)];
        for (channel, own) in colour.iter().zip(own) {
            let value = channel + common + own * grain * 0.5;
            pixels.push((value * 255.0 + 0.5) as u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use feedline_codec::read_header;

    use super::*;

    const STYLE: Style = Style { seed: 0, classes: 5, sides: (40, 96), quality: 88 };

    #[test]
    fn sizes_stay_within_bounds_and_vary() {
        let sizes: Vec<(u32, u32)> = (0..60)
            .map(|number| {
                let header = read_header(&STYLE.jpeg(number).unwrap()).unwrap();
                (header.width, header.height)
            })
            .collect();
        assert!(sizes.iter().all(|(width, height)| (40..=96).contains(width) && (40..=96).contains(height)));
        assert!(sizes.iter().any(|(width, height)| width > height));
        assert!(sizes.iter().any(|(width, height)| width < height));
    }

    #[test]
    fn a_picture_is_a_function_of_seed_and_number() {
        assert_eq!(STYLE.jpeg(7).unwrap(), STYLE.jpeg(7).unwrap());
        assert_ne!(STYLE.jpeg(7).unwrap(), STYLE.jpeg(12).unwrap());
        assert_ne!(STYLE.jpeg(7).unwrap(), Style { seed: 1, ..STYLE }.jpeg(7).unwrap());
    }

    #[test]
    fn every_machine_makes_the_same_bytes() {
        let hash = |number| STYLE.jpeg(number).unwrap().iter().fold(0, |hash, byte| mix(hash ^ u64::from(*byte)));
        assert_eq!(
            [0, 1, 2].map(hash),
            [5_122_805_865_957_376_627, 12_574_130_979_844_833_603, 10_219_832_471_924_292_725]
        );
    }

    #[test]
    fn hues_go_round_the_colour_circle() {
        let bytes = |hue, saturation, value| colour(hue, saturation, value).map(|channel| (channel * 255.0) as u8);
        assert_eq!(bytes(0.0, 1.0, 1.0), [255, 0, 0]);
        assert_eq!(bytes(1.0 / 3.0, 1.0, 1.0), [0, 255, 0]);
        assert_eq!(bytes(-0.25, 0.0, 0.5), [127; 3]);
    }
}
