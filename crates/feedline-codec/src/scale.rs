//! The scale at which a picture is decoded.

/// The size of the decoded picture, relative to the stored one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scale {
    /// As stored.
    #[default]
    Full,
    /// Half of each side.
    Half,
    /// A quarter of each side.
    Quarter,
    /// An eighth of each side.
    Eighth,
}

impl Scale {
    /// Stored pixels of one decoded pixel, along a side.
    pub fn divisor(self) -> u32 {
        match self {
            Self::Full => 1,
            Self::Half => 2,
            Self::Quarter => 4,
            Self::Eighth => 8,
        }
    }
}
