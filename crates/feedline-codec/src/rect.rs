//! A rectangle of a picture, in pixels.

/// A rectangle; it lies inside its picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rect {
    /// Columns left of it.
    pub left: u32,
    /// Rows above it.
    pub top: u32,
    /// Columns in it.
    pub width: u32,
    /// Rows in it.
    pub height: u32,
}

impl Rect {
    /// A whole picture.
    pub fn whole(width: u32, height: u32) -> Self {
        Self { left: 0, top: 0, width, height }
    }

    /// The first column to the right of it.
    pub fn right(&self) -> u32 {
        self.left + self.width
    }

    /// The first row below it.
    pub fn bottom(&self) -> u32 {
        self.top + self.height
    }

    /// Whether it has pixels and all of them lie in a picture of this size.
    pub fn is_inside(&self, width: u32, height: u32) -> bool {
        let fits = |start: u32, len: u32, limit: u32| start.checked_add(len).is_some_and(|end| end <= limit);
        self.width > 0 && self.height > 0 && fits(self.left, self.width, width) && fits(self.top, self.height, height)
    }

    /// The same rectangle in coordinates that start at (`left`, `top`), which must not be right of it or below it.
    pub(crate) fn seen_from(self, left: u32, top: u32) -> Self {
        Self { left: self.left - left, top: self.top - top, ..self }
    }

    /// Whether all of `other` lies in it.
    pub fn contains(&self, other: &Self) -> bool {
        self.left <= other.left
            && self.top <= other.top
            && other.right() <= self.right()
            && other.bottom() <= self.bottom()
    }
}
