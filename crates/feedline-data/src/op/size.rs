//! A target size: one number for a square, or height and width, as in torchvision.

use serde::{Deserialize, Serialize};

/// Rows and columns of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged, expecting = "size is a whole number, or height and width")]
pub(super) enum Size {
    /// A square.
    Square(u32),
    /// Height, width.
    Sides([u32; 2]),
}

impl Size {
    /// Height and width of the result.
    pub(super) fn height_width(self) -> (u32, u32) {
        match self {
            Self::Square(side) => (side, side),
            Self::Sides([height, width]) => (height, width),
        }
    }

    /// Rejects sizes that no picture has.
    pub(super) fn check(self) -> Result<(), crate::op::CheckError> {
        let (height, width) = self.height_width();
        if height == 0 || width == 0 || height > MAX_SIDE || width > MAX_SIDE {
            let problem = format!("size is {height}x{width}; sides are from 1 to {MAX_SIDE}");
            return Err(crate::op::CheckError::Parameter(problem));
        }
        Ok(())
    }
}

/// Upper limit of a side.
pub(super) const MAX_SIDE: u32 = 1 << 16;
