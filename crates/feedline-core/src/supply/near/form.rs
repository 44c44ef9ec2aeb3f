//! The form in which a peer sends a sample: how much of the work is done, and how the bytes are packed.

use serde::{Deserialize, Serialize};

use super::super::Cut;
use crate::plan::Plan;

/// The form of a sample on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Form {
    /// Ops that are done.
    pub cut: Cut,
    /// Whether the peer goes by its seek indexes: encoded pictures are cut to what their crop needs, and no more than that is
    /// decoded.
    pub is_trimmed: bool,
    /// How the bytes are packed.
    pub packing: Packing,
}

/// How bytes are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Packing {
    /// As they are.
    #[default]
    Plain,
    /// LZ4: quick.
    Lz4,
    /// Zstandard: smaller.
    Zstd,
}

impl Packing {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Lz4, Self::Zstd];
}

impl Form {
    /// The stored bytes as they are.
    pub const RAW: Self = Self { cut: Cut(0), is_trimmed: false, packing: Packing::Plain };

    /// What it is called in snapshots and reports of `plan`.
    pub fn name(self, plan: &Plan) -> String {
        let state = match self.cut.0.checked_sub(1) {
            None if self.is_trimmed && plan.is_approximate() => "trimmed, fewer coefficients".to_owned(),
            None if self.is_trimmed => "trimmed".to_owned(),
            None => "raw".to_owned(),
            Some(last) => format!("after {}", plan.ops()[last].name()),
        };
        match self.packing {
            Packing::Plain => state,
            Packing::Lz4 => format!("{state}, lz4"),
            Packing::Zstd => format!("{state}, zstd"),
        }
    }
}
