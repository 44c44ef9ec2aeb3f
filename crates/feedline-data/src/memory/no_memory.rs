//! Why memory cannot be had.

use super::Cancelled;

/// Why memory cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum NoMemory {
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// Others use what is needed: give back what you hold, and come again asking for `bytes` at once.
    #[error("{bytes} bytes are not free now")]
    Crowded { bytes: u64 },
    #[error("{bytes} bytes are needed at once, but the machine has {memory}")]
    TooLarge { bytes: u64, memory: u64 },
    #[error("the system has no {bytes} bytes left")]
    Exhausted { bytes: u64 },
    #[error("{bytes} bytes are more than the {limit} that are sent in one reply")]
    Limited { bytes: u64, limit: u64 },
}
