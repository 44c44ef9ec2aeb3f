//! Why memory was refused.

use super::Cancelled;

/// Why memory was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum NoMemory {
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// Other samples use it. Release everything and try again with `bytes` reserved at the start.
    #[error("{bytes} bytes are not free now")]
    NotNow { bytes: u64 },
    #[error("{bytes} bytes are needed at once, but the machine has {memory}")]
    TooLarge { bytes: u64, memory: u64 },
    #[error("the system has no {bytes} bytes left")]
    Exhausted { bytes: u64 },
    #[error("{bytes} bytes are too many for one reply; the limit is {limit}")]
    Limited { bytes: u64, limit: u64 },
}
