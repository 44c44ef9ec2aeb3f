//! The form in which a peer sends a sample: the ops applied so far, and the packing.

use serde::{Deserialize, Serialize};

use crate::cut::Cut;

/// The form of a sample on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Form {
    /// Number of ops applied.
    pub cut: Cut,
    /// Whether the peer uses its seek indexes: encoded pictures are cut to what their crop needs, and only that is decoded.
    pub is_trimmed: bool,
    /// How the bytes are packed.
    pub packing: Packing,
}

/// How bytes are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Packing {
    /// Unpacked.
    #[default]
    Plain,
    /// LZ4: faster.
    Lz4,
    /// Zstandard: smaller.
    Zstd,
}

impl Packing {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Lz4, Self::Zstd];
}

impl Form {
    /// The stored bytes, unchanged.
    pub const RAW: Self = Self { cut: Cut(0), is_trimmed: false, packing: Packing::Plain };
}
