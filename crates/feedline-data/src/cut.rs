//! Places in an op chain.

use serde::{Deserialize, Serialize};

/// The place in the op chain where work changes hands: ops before it are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cut(pub usize);
