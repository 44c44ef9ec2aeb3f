//! The form in which a peer sends a sample: how much of the work is done, and how the bytes are packed.

use serde::{Deserialize, Serialize};

use crate::cut::Cut;

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
}
