//! Smooth random fields: the texture of generated pictures.
//!
//! In: a table of random numbers, and a frame (direction, scale). Out: values between -1 and 1 at points of the plane. The code
//! uses only `+ - * /`, `sqrt` and `floor`. IEEE 754 defines their results exactly, so every machine generates the same picture.

use feedline_order::random::philox;

/// Side of the table. A power of two, so that the texture repeats without a seam.
const SIDE: usize = 64;

/// The sequence of random numbers of one picture.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    key: [u32; 2],
    picture: u64,
    count: u32,
}

impl Numbers {
    /// The numbers of picture `picture` under `key`.
    pub(crate) fn new(key: u64, picture: u64) -> Self {
        Self { key: [key as u32, (key >> 32) as u32], picture, count: 0 }
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        // Counter-based (Philox): number `count` of a picture is computed directly, without state.
        let block = philox([self.count, 0, self.picture as u32, (self.picture >> 32) as u32], self.key);
        self.count += 1;
        u64::from(block[0]) | u64::from(block[1]) << 32
    }

    /// Uniform in `[0, 1)`, in steps of 2^-24, which an `f32` represents exactly.
    pub(crate) fn unit(&mut self) -> f32 {
        // The upper 24 bits: as many as the significand of an `f32` has.
        (self.bits() >> 40) as f32 / (1u32 << 24) as f32
    }

    /// Uniform in `[low, high)`.
    pub(crate) fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.unit()
    }

    /// Whether an event of the given probability happens.
    pub(crate) fn happens(&mut self, probability: f32) -> bool {
        self.unit() < probability
    }

    /// A number in `(-1, 1)` that is more often near 0: the scaled sum of three uniform numbers.
    pub(crate) fn around(&mut self) -> f32 {
        (self.unit() + self.unit() + self.unit()) / 1.5 - 1.0
    }
}

/// A direction in the plane, of length one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direction {
    /// To the right.
    pub x: f32,
    /// Down.
    pub y: f32,
}

impl Direction {
    /// A direction by its angle in half turns: 0 is right, 0.5 is down. Uses the rational parametrisation of the circle, without
    /// sine and cosine.
    pub(super) fn at(turn: f32) -> Self {
        let turn = turn - turn.floor();
        // The parametrisation (1-t^2, 2t)/(1+t^2) covers a quarter turn for t in 0..1. The second quarter is the first one rotated
        // by 90 degrees.
        let (quarter, t) = if turn < 0.5 { (0, turn * 2.0) } else { (1, turn * 2.0 - 1.0) };
        let length = 1.0 + t * t;
        let (x, y) = ((1.0 - t * t) / length, 2.0 * t / length);
        if quarter == 0 { Self { x, y } } else { Self { x: -y, y: x } }
    }
}

/// Value noise: a random value at each integer point of the plane, and smooth interpolation between them.
#[derive(Debug)]
pub(super) struct Lattice(Vec<f32>);

/// Maps points of a picture to a lattice.
#[derive(Clone, Copy, Debug)]
pub(super) struct LatticeFrame {
    /// The direction in which the texture is stretched.
    pub along: Direction,
    /// The factor by which it is stretched.
    pub stretch: f32,
    /// Pixels from one value of the lattice to the next, across the stretch.
    pub cell: f32,
    /// The lattice point of the picture's top left corner.
    pub origin: (f32, f32),
}

impl Lattice {
    /// A lattice from the next random numbers.
    pub(super) fn new(numbers: &mut Numbers) -> Self {
        // 64 random bits give four values.
        let values = (0..SIDE * SIDE / 4).flat_map(|_| {
            let bits = numbers.bits();
            [0, 16, 32, 48].map(|shift| f32::from((bits >> shift) as u16 as i16) / 32768.0)
        });
        Self(values.collect())
    }

    /// Adds `amplitude` times the field to a row of points that begins at `(x, y)` and goes right in steps of `step`.
    pub(super) fn add_row(&self, row: &mut [f32], (x, y): (f32, f32), step: f32, frame: &LatticeFrame, amplitude: f32) {
        let Direction { x: ax, y: ay } = frame.along;
        let (u_scale, v_scale) = (1.0 / (frame.cell * frame.stretch), 1.0 / frame.cell);
        // Shifted to positive numbers, where truncation to an integer rounds down.
        let u_start = (x * ax + y * ay) * u_scale + frame.origin.0 + 8192.0;
        let v_start = (y * ax - x * ay) * v_scale + frame.origin.1 + 8192.0;
        let (u_step, v_step) = (step * ax * u_scale, -step * ay * v_scale);
        for (number, value) in row.iter_mut().enumerate() {
            // Multiplied instead of accumulated, so that rounding errors do not grow along the row.
            let (u, v) = (u_start + number as f32 * u_step, v_start + number as f32 * v_step);
            *value += amplitude * self.at(u, v);
        }
    }

    #[inline]
    fn at(&self, u: f32, v: f32) -> f32 {
        let (column, row) = (u as u32, v as u32);
        let (fu, fv) = (smooth(u - column as f32), smooth(v - row as f32));
        let (left, right) = (column as usize % SIDE, (column as usize + 1) % SIDE);
        let (top, bottom) = (row as usize % SIDE * SIDE, (row as usize + 1) % SIDE * SIDE);
        // The fixed length lets the compiler omit bounds checks.
        let table: &[f32; SIDE * SIDE] = self.0.as_slice().try_into().expect("a lattice has its size");
        // Bilinear interpolation with smoothed fractions.
        let above = table[top + left] + fu * (table[top + right] - table[top + left]);
        let below = table[bottom + left] + fu * (table[bottom + right] - table[bottom + left]);
        above + fv * (below - above)
    }
}

/// Smoothstep: from 0 to 1 with zero slope at both ends.
pub(super) fn smooth(t: f32) -> f32 {
    t * t * (3.0 - 2.0 * t)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_have_length_one_and_turn_half_a_circle() {
        for step in 0..100 {
            let direction = Direction::at(step as f32 / 100.0);
            assert!((direction.x * direction.x + direction.y * direction.y - 1.0).abs() < 1e-5);
            assert!(direction.y >= 0.0);
        }
        assert!(Direction::at(0.5).x.abs() < 1e-6);
        assert!(Direction::at(0.75).x < -0.5);
    }

    #[test]
    fn a_field_is_smooth_and_stays_within_its_amplitude() {
        let lattice = Lattice::new(&mut Numbers::new(3, 4));
        let frame = LatticeFrame { along: Direction::at(0.2), stretch: 2.0, cell: 16.0, origin: (0.3, 7.0) };
        let mut row = vec![0.0; 500];
        lattice.add_row(&mut row, (0.0, 11.0), 1.0, &frame, 1.0);
        assert!(row.iter().all(|value| value.abs() <= 1.0));
        assert!(row.windows(2).all(|pair| (pair[0] - pair[1]).abs() < 0.25));
        assert!(row.iter().any(|value| value.abs() > 0.2), "a field is not flat");
    }
}
