//! The user's wish to stop, passed in by the caller and polled.

use std::time::Duration;

use anyhow::Result;

/// Longest time between two questions.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// The user wants to stop.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// Asks whether the user wants to stop.
pub struct Interrupt<'a>(&'a dyn Fn() -> bool);

impl<'a> Interrupt<'a> {
    /// Asks `interrupted`.
    pub fn new(interrupted: &'a dyn Fn() -> bool) -> Self {
        Self(interrupted)
    }

    /// An error if the user wants to stop.
    pub fn check(&self) -> Result<()> {
        if (self.0)() { Err(Interrupted.into()) } else { Ok(()) }
    }
}
