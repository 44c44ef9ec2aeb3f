//! Interruption by the user (Ctrl-C), passed in by the caller and polled.

use std::time::Duration;

use anyhow::Result;

/// Interval between two checks.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// The error if the user wants to stop.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// Checks whether the user wants to stop.
pub struct Interrupt<'a>(&'a dyn Fn() -> bool);

impl<'a> Interrupt<'a> {
    /// `interrupted` returns whether the user wants to stop. It is called often and must be fast.
    pub fn new(interrupted: &'a dyn Fn() -> bool) -> Self {
        Self(interrupted)
    }

    /// Fails if the user wants to stop.
    pub fn check(&self) -> Result<()> {
        if (self.0)() { Err(Interrupted.into()) } else { Ok(()) }
    }
}
