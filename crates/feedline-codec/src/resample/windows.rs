//! The filter windows of a resized side: which source pixels make each result, and with which weights.
//!
//! In: the length of a side before and after, and a range of results. Out: for each result, its first source pixel and its weights
//! as integers. Always true: windows and weights are those of the whole side, whatever the range. The arithmetic is that of the
//! crate `fast_image_resize` 6.1, step by step, because a different rounding would change pixels.

use std::ops::Range;

/// Bits that a product of a weight and a byte must leave free in an i32: those of the byte, the sign, and overshoot.
const MAX_PRECISION: u32 = 32 - 8 - 2;
/// Weights are i16.
const WEIGHT_BITS: u32 = 16 - 1;

/// The shape of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    Linear,
    Cubic,
}

impl Kernel {
    /// Half the width of the filter, in source pixels of a picture that grows.
    fn support(self) -> f64 {
        match self {
            Self::Linear => 1.0,
            Self::Cubic => 2.0,
        }
    }
}

fn linear(x: f64) -> f64 {
    let x = x.abs();
    if x < 1.0 { 1.0 - x } else { 0.0 }
}

/// Catmull-Rom.
fn cubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    let x = x.abs();
    if x < 1.0 {
        ((A + 2.) * x - (A + 3.)) * x * x + 1.
    } else if x < 2.0 {
        (((x - 5.) * x + 8.) * x - 4.) * A
    } else {
        0.0
    }
}

/// Where the windows of a side lie.
#[derive(Clone, Copy, Debug)]
struct Geometry {
    from: u32,
    scale: f64,
    radius: f64,
    per_scale: f64,
}

impl Geometry {
    fn new(from: u32, to: u32, kernel: Kernel) -> Self {
        let scale = f64::from(from) / f64::from(to);
        // Antialiasing: a filter of a picture that shrinks covers all source pixels of a result.
        let filter_scale = scale.max(1.0);
        Self { from, scale, radius: kernel.support() * filter_scale, per_scale: 1.0 / filter_scale }
    }

    fn centre(&self, result: u32) -> f64 {
        (f64::from(result) + 0.5) * self.scale
    }

    fn start(&self, result: u32) -> u32 {
        (self.centre(result) - self.radius).floor().max(0.0) as u32
    }

    fn end(&self, result: u32) -> u32 {
        (self.centre(result) + self.radius).ceil().min(f64::from(self.from)) as u32
    }
}

/// The source pixels that some results of a side depend on.
pub(super) fn source_range(from: u32, to: u32, part: Range<u32>, kernel: Kernel) -> Range<u32> {
    if from == to {
        return part;
    }
    let geometry = Geometry::new(from, to, kernel);
    geometry.start(part.start)..geometry.end(part.end - 1)
}

/// The windows of some results of a side.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// For each result: the first source pixel, counted from the start of the source range, and the number of its weights.
    bounds: Vec<(u32, u32)>,
    /// `stride` weights for each result. Those after its last one are 0.
    weights: Vec<i16>,
    stride: usize,
    precision: u32,
    exact: Vec<f64>,
    window: Vec<f64>,
}

impl Windows {
    /// Computes the windows of `part` of a side. Returns the source pixels that they cover.
    pub(super) fn set(&mut self, from: u32, to: u32, part: Range<u32>, kernel: Kernel) -> Range<u32> {
        let geometry = Geometry::new(from, to, kernel);
        match kernel {
            Kernel::Linear => self.fill(&geometry, to, part.clone(), linear),
            Kernel::Cubic => self.fill(&geometry, to, part.clone(), cubic),
        }
        source_range(from, to, part, kernel)
    }

    fn fill(&mut self, geometry: &Geometry, to: u32, part: Range<u32>, filter: impl Fn(f64) -> f64) {
        let longest = geometry.radius.ceil() as usize * 2 + 1;
        // A multiple of 4, because vector code reads four weights at once.
        self.stride = longest.next_multiple_of(4);
        self.bounds.clear();
        self.exact.clear();
        let first = geometry.start(part.start);
        // Weights beside a window are 0.
        let mut most = 0.0_f64;
        // The largest weight of the whole side decides the precision, so all windows are computed.
        for result in 0..to {
            let start = self.fill_window(geometry, result, &filter);
            most = self.window.iter().fold(most, |most, &weight| most.max(weight));
            if part.contains(&result) {
                self.bounds.push((start - first, self.window.len() as u32));
                let end = self.exact.len() + self.stride;
                self.exact.extend_from_slice(&self.window);
                self.exact.resize(end, 0.0);
            }
        }
        self.precision = precision(most);
        let scale = f64::from(1_u32 << self.precision);
        self.weights.clear();
        self.weights.extend(self.exact.iter().map(|weight| (weight * scale).round() as i16));
    }

    /// Computes the weights of one result, without zeros at the ends. Returns the source pixel of the first one.
    fn fill_window(&mut self, geometry: &Geometry, result: u32, filter: impl Fn(f64) -> f64) -> u32 {
        let all = geometry.start(result)..geometry.end(result);
        let mut start = all.start;
        let centre = geometry.centre(result) - 0.5;
        self.window.clear();
        let mut sum = 0.0;
        for x in all {
            let weight = filter((f64::from(x) - centre) * geometry.per_scale);
            if x == start && weight == 0.0 {
                start += 1;
            } else {
                self.window.push(weight);
                sum += weight;
            }
        }
        while self.window.last() == Some(&0.0) {
            self.window.pop();
        }
        if sum != 0.0 {
            self.window.iter_mut().for_each(|weight| *weight /= sum);
        }
        start
    }

    /// The number of results.
    pub(super) fn len(&self) -> usize {
        self.bounds.len()
    }

    /// Bits behind the binary point of the weights.
    pub(super) fn precision(&self) -> u32 {
        self.precision
    }

    /// The first source pixel of a result, and its weights without the zeros after them.
    pub(super) fn exact(&self, number: usize) -> (usize, &[i16]) {
        let (start, count) = self.bounds[number];
        (start as usize, &self.weights[number * self.stride..][..count as usize])
    }

    /// The first source pixel of a result, the number of its weights, and the weights in pairs. The second of the last pair may be 0.
    pub(super) fn in_pairs(&self, number: usize) -> (usize, usize, &[[i16; 2]]) {
        let (start, count) = self.bounds[number];
        let weights = self.weights[number * self.stride..][..self.stride].as_chunks::<2>().0;
        (start as usize, count as usize, &weights[..count.div_ceil(2) as usize])
    }

    /// For each result, its first source pixel and its weights, filled up with zeros to a multiple of 4. The last weights may belong
    /// to places behind the source.
    pub(super) fn in_fours(&self) -> impl Iterator<Item = (usize, &[[i16; 4]])> {
        let weights = self.weights.chunks_exact(self.stride);
        self.bounds.iter().zip(weights).map(|(&(start, count), weights)| {
            let fours = (count as usize).div_ceil(4);
            (start as usize, &weights.as_chunks::<4>().0[..fours])
        })
    }
}

/// The most bits behind the binary point with which the largest weight fits.
fn precision(most: f64) -> u32 {
    (0..MAX_PRECISION)
        .find(|bits| {
            let next = (most * f64::from(1_u32 << (bits + 1))).round() as i32;
            next >= 1 << WEIGHT_BITS
        })
        .unwrap_or(MAX_PRECISION - 1)
}
