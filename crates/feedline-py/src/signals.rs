//! Ctrl-C during a wait: waits are divided into intervals, and signals are checked between them.

use std::time::Duration;

/// Interval between two checks for signals.
pub(crate) const SIGNAL_CHECK: Duration = Duration::from_millis(100);
