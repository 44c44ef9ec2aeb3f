//! A plot as pixels.

use super::{Anchor, HEIGHT, Mark, Plot, Stroke, WIDTH};
use crate::font;

const COLUMNS: usize = WIDTH as usize;
const ROWS: usize = HEIGHT as usize;
const GROUND: u8 = 255;
const INK: [u8; 3] = [30, 30, 30];

impl Plot {
    /// Packed RGB pixels.
    pub fn pixels(&self) -> Vec<u8> {
        let mut pixels = vec![GROUND; COLUMNS * ROWS * 3];
        let mut put = |x: f64, y: f64, colour: [u8; 3], opacity: f64| {
            let inside = x >= 0.0 && y >= 0.0 && (x as usize) < COLUMNS && (y as usize) < ROWS;
            if inside {
                let at = (y as usize * COLUMNS + x as usize) * 3;
                for (pixel, part) in pixels[at..at + 3].iter_mut().zip(colour) {
                    *pixel = (f64::from(*pixel) * (1.0 - opacity) + f64::from(part) * opacity).round() as u8;
                }
            }
        };
        for mark in self.marks() {
            match mark {
                Mark::Line { points, colour, stroke } => {
                    let opacity = match stroke {
                        Stroke::Grid => 0.25,
                        Stroke::Faint => 0.4,
                        Stroke::Full => 1.0,
                    };
                    for [(x, y), (to_x, to_y)] in points.array_windows() {
                        let steps = (to_x - x).abs().max((to_y - y).abs()).ceil().max(1.0);
                        for step in 0..steps as u32 {
                            let part = f64::from(step) / steps;
                            put(x + (to_x - x) * part, y + (to_y - y) * part, colour, opacity);
                        }
                    }
                }
                Mark::Dot { at: (x, y), colour } => {
                    for (dx, dy) in (-2..=2).flat_map(|dx| (-2..=2).map(move |dy| (dx, dy))) {
                        if dx * dx + dy * dy <= 5 {
                            put(x + f64::from(dx), y + f64::from(dy), colour, 1.0);
                        }
                    }
                }
                Mark::Text { at: (x, y), anchor, text } => {
                    let before = match anchor {
                        Anchor::Left => 0.0,
                        Anchor::Middle => 0.5,
                        Anchor::Right => 1.0,
                    };
                    let left = x - before * (text.chars().count() * font::WIDTH) as f64;
                    for (column, row) in font::pixels(&text) {
                        put(left + column as f64, y - font::HEIGHT as f64 + row as f64, INK, 1.0);
                    }
                }
            }
        }
        pixels
    }
}
