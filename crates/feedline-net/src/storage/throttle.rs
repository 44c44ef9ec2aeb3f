//! Limits what a server sends, for experiments with slow links.

use super::allowance::Allowance;

/// Bytes that may be sent at once after a pause, like the buffer of a switch.
const BURST_BYTES: f64 = 64.0 * 1024.0;
/// Bytes between two checks of the clock.
pub(super) const PIECE_BYTES: usize = 16 * 1024;

/// The limit, shared by all connections.
#[derive(Debug)]
pub(super) struct Throttle(Allowance);

impl Throttle {
    pub(super) fn new(megabits_per_second: f64) -> Self {
        Self(Allowance::new(bytes_per_second(megabits_per_second), BURST_BYTES))
    }

    /// Changes the limit.
    pub(super) fn set(&self, megabits_per_second: f64) {
        self.0.set(bytes_per_second(megabits_per_second));
    }

    /// Waits until `bytes` may be sent.
    pub(super) fn wait(&self, bytes: usize) {
        self.0.wait(bytes as f64);
    }
}

fn bytes_per_second(megabits_per_second: f64) -> f64 {
    // Decimal megabits, as networks are specified.
    megabits_per_second * 1e6 / 8.0
}
