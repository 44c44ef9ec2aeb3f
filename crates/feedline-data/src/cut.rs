//! Places in an op chain.

use serde::{Deserialize, Serialize};

/// A place in the op chain: all ops before it are done. Supplies, caches and storage servers hand samples over at a cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cut(pub usize);
