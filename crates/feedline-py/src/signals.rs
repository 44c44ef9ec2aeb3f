//! Ctrl-C while a call waits: waits are cut into turns, and signals are checked between them.

use std::time::Duration;

/// The longest turn of a wait.
pub(crate) const SIGNAL_CHECK: Duration = Duration::from_millis(100);
