//! A token that ends work early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Passed to everything that may run long; polled at least every 100 ms (law 7).
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

/// The run was closed during the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run was closed")]
pub struct Cancelled;

impl Cancel {
    /// Asks all holders of the token to stop.
    pub fn cancel(&self) {
        // Release and acquire: a thread that sees the flag also sees what was written before it was set.
        self.0.store(true, Ordering::Release);
    }

    /// Whether to stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Fails if work should stop.
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.is_cancelled() { Err(Cancelled) } else { Ok(()) }
    }
}
