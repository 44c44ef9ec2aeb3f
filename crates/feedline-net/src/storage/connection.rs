//! The state of one connection to a server.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_memory::Condvar;

use super::fair::Request;
use crate::wire::Frame;

/// Bytes to send before the speed is reported. Fewer may all fit into the buffers of the system.
const MIN_SPEED_BYTES: u64 = 256 << 10;
/// After this many bytes both sums are halved, so that older transfers count less and less.
const HALVE_AFTER_BYTES: u64 = 16 << 20;

/// A connection of an authenticated client.
#[derive(Debug, Default)]
pub(super) struct Connection {
    pub requests: VecDeque<Request>,
    pub request_bytes: u64,
    pub replies: VecDeque<Frame>,
    /// Bytes of replies in preparation, queued or being sent.
    pub reply_bytes: u64,
    /// When sending of the current reply started.
    pub sending_since: Option<Instant>,
    /// Bytes sent recently, and the time it took. On a slow link the time is long.
    sent_bytes: u64,
    sending: Duration,
    /// Whether one of its requests can be served.
    pub has_turn: bool,
    /// Whether its next request waits for memory.
    pub waits_for_memory: bool,
    pub changed: Arc<Condvar>,
}

impl Connection {
    /// Records a reply that was sent.
    pub(super) fn add_sent(&mut self, bytes: u64, took: Duration) {
        self.sending_since = None;
        self.sent_bytes += bytes;
        self.sending += took;
        if self.sent_bytes > HALVE_AFTER_BYTES {
            self.sent_bytes /= 2;
            self.sending /= 2;
        }
    }

    /// The speed at which it receives, in bytes per second, once enough was sent.
    pub(super) fn bytes_per_second(&self) -> Option<f64> {
        let is_enough = self.sent_bytes >= MIN_SPEED_BYTES;
        // At least a nanosecond, so that the quotient is finite.
        is_enough.then(|| self.sent_bytes as f64 / self.sending.as_secs_f64().max(1e-9))
    }
}
