//! Crops for the examples, drawn as `RandomResizedCrop` draws them.

use feedline_codec::Rect;

/// A random number generator (xorshift64). Its seed must not be 0.
pub(crate) struct Random(pub u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A crop of a picture of this size.
    pub(crate) fn crop(&mut self, width: u32, height: u32) -> Rect {
        for _ in 0..10 {
            let area = f64::from(width) * f64::from(height) * (0.08 + 0.92 * self.unit());
            let aspect = (0.75_f64.ln() + self.unit() * (16.0_f64 / 9.0).ln()).exp();
            let (w, h) = ((area * aspect).sqrt().round() as u32, (area / aspect).sqrt().round() as u32);
            if w > 0 && w <= width && h > 0 && h <= height {
                let left = (self.unit() * f64::from(width - w + 1)) as u32;
                let top = (self.unit() * f64::from(height - h + 1)) as u32;
                return Rect { left, top, width: w, height: h };
            }
        }
        let side = width.min(height);
        Rect { left: (width - side) / 2, top: (height - side) / 2, width: side, height: side }
    }
}
