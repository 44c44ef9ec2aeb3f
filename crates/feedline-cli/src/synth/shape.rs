//! Objects in a picture: ellipses and boxes with soft edges, and their own colour, shade and texture.

use super::noise::{Direction, Numbers, smooth};
use super::picture::{Colour, colour};

/// One object.
#[derive(Debug)]
pub(super) struct Shape {
    outline: Outline,
    centre: (f32, f32),
    along: Direction,
    /// Half sides, along and across.
    half: (f32, f32),
    /// The first and the last row that it may touch.
    rows: (f32, f32),
    /// The inverse of the edge's width, relative to the half sides.
    sharpness: f32,
    colour: Colour,
    /// How far the outline follows the relief of the picture, relative to the half sides.
    roughness: f32,
    /// How much the light falls off from one side to the other.
    shade: f32,
    /// How strongly the picture's texture shows on it.
    texture: f32,
}

#[derive(Clone, Copy, Debug)]
enum Outline {
    Ellipse,
    Box,
}

impl Shape {
    /// A random object in a picture of this size. Half of the objects have the accent colour.
    pub(super) fn new(numbers: &mut Numbers, width: f32, height: f32, accent: Colour) -> Self {
        let outline = if numbers.happens(0.6) { Outline::Ellipse } else { Outline::Box };
        let side = width.min(height);
        let half = (side * numbers.between(0.05, 0.3), side * numbers.between(0.04, 0.2));
        let centre = (width * numbers.unit(), height * numbers.unit());
        let any = colour(numbers.unit(), numbers.between(0.0, 0.7), numbers.between(0.1, 0.95));
        let reach = reach(half);
        Self {
            outline,
            centre,
            along: Direction::at(numbers.unit()),
            half,
            rows: (centre.1 - reach, centre.1 + reach),
            sharpness: half.0.min(half.1) / numbers.between(1.0, 9.0),
            colour: if numbers.happens(0.5) { accent } else { any },
            roughness: numbers.between(0.0, 0.5),
            shade: numbers.between(-0.5, 0.5),
            texture: numbers.between(0.3, 1.5),
        }
    }

    /// Draws its part of row `y`.
    pub(super) fn draw_row(&self, row: &mut [Colour], y: usize, texture: &[f32], relief: &[f32]) {
        let down = y as f32 - self.centre.1;
        if (y as f32) < self.rows.0 || (y as f32) > self.rows.1 {
            return;
        }
        let reach = reach(self.half);
        let first = (self.centre.0 - reach).max(0.0) as usize;
        let last = ((self.centre.0 + reach).max(0.0) as usize).min(row.len());
        for x in first..last.max(first) {
            let right = x as f32 - self.centre.0;
            // Rotated into the axes of the shape, in units of its half sides.
            let along = (right * self.along.x + down * self.along.y) / self.half.0;
            let across = (down * self.along.x - right * self.along.y) / self.half.1;
            let distance = match self.outline {
                Outline::Ellipse => (along * along + across * across).sqrt(),
                Outline::Box => along.abs().max(across.abs()),
            };
            let distance = distance + self.roughness * relief[x];
            if distance >= 1.0 {
                continue;
            }
            // 0 outside of the edge, 1 inside, with a smooth transition (antialiasing).
            let cover = smooth(((1.0 - distance) * self.sharpness).min(1.0));
            let brightness = 0.9 + self.shade * across + 0.25 * relief[x] + self.texture * texture[x];
            for (channel, own) in row[x].iter_mut().zip(&self.colour) {
                *channel += cover * (own * brightness - *channel);
            }
        }
    }
}

/// Upper limit of the distance of a point from the centre. A rough outline exceeds the half sides by less than half of them.
fn reach(half: (f32, f32)) -> f32 {
    1.5 * (half.0 + half.1)
}
