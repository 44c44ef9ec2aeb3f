//! A box in a volume, and how its elements are copied.

/// A box in a volume: its start and its sides along depth, height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Region {
    /// The first element along each axis.
    pub start: [usize; 3],
    /// Elements along each axis.
    pub sides: [usize; 3],
}

impl Region {
    /// All of a volume.
    pub fn whole(sides: [usize; 3]) -> Self {
        Self { start: [0; 3], sides }
    }

    /// Its end along an axis.
    pub(crate) fn end(&self, axis: usize) -> usize {
        self.start[axis].saturating_add(self.sides[axis])
    }

    /// Whether it lies in a volume of these sides.
    pub(crate) fn is_inside(&self, sides: [usize; 3]) -> bool {
        (0..3).all(|axis| self.end(axis) <= sides[axis])
    }

    /// Whether `other` lies inside it.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        (0..3).all(|axis| self.start[axis] <= other.start[axis] && other.end(axis) <= self.end(axis))
    }

    /// The same region, relative to the start of one that contains it.
    #[must_use]
    pub(crate) fn within(&self, outer: &Self) -> Self {
        Self { start: std::array::from_fn(|axis| self.start[axis] - outer.start[axis]), ..*self }
    }

    /// Number of elements in it.
    pub fn elements(&self) -> usize {
        self.sides.iter().product()
    }

    /// Copies this region of each of `channels` consecutive volumes with these sides. `out` gets the elements without gaps.
    pub fn copy_from(&self, source: &[u8], channels: usize, sides: [usize; 3], element_bytes: usize, out: &mut [u8]) {
        let [_, height, width] = sides;
        let row = self.sides[2] * element_bytes;
        if self.elements() == 0 {
            return;
        }
        let rows = (0..channels)
            .flat_map(|channel| (0..self.sides[0]).flat_map(move |z| (0..self.sides[1]).map(move |y| (channel, z, y))));
        for ((channel, z, y), target) in rows.zip(out.chunks_exact_mut(row)) {
            // The last axis is the fastest.
            let plane = channel * sides[0] + self.start[0] + z;
            let start = ((plane * height + self.start[1] + y) * width + self.start[2]) * element_bytes;
            target.copy_from_slice(&source[start..start + row]);
        }
    }
}
