//! What a server keeps for one connection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Condvar;

use super::fair::Request;
use crate::wire::Frame;

/// Bytes that have to be sent before their speed is told.
const TELLING_BYTES: u64 = 256 << 10;
/// Bytes after which those that were sent earlier count less.
const LATE_BYTES: u64 = 16 << 20;

/// A connection whose client may ask.
#[derive(Debug, Default)]
pub(super) struct Connection {
    pub requests: VecDeque<Request>,
    pub request_bytes: u64,
    pub replies: VecDeque<Frame>,
    /// Bytes of replies that are made, wait, or are sent.
    pub reply_bytes: u64,
    /// Since when the newest reply is sent.
    pub sending_since: Option<Instant>,
    /// What was sent of late, and the time that took: a link that is slow makes it long.
    sent_bytes: u64,
    sending: Duration,
    /// Whether it is among those of which a request can be done.
    pub has_turn: bool,
    /// Whether its next request waits for memory.
    pub is_crowded: bool,
    pub changed: Arc<Condvar>,
}

impl Connection {
    /// Books that a reply was sent, which took some time.
    pub(super) fn add_sent(&mut self, bytes: u64, took: Duration) {
        self.sending_since = None;
        self.sent_bytes += bytes;
        self.sending += took;
        if self.sent_bytes > LATE_BYTES {
            self.sent_bytes /= 2;
            self.sending /= 2;
        }
    }

    /// Bytes a second that it takes while something is sent to it, once enough was.
    pub(super) fn bytes_per_second(&self) -> Option<f64> {
        let is_enough = self.sent_bytes >= TELLING_BYTES;
        is_enough.then(|| self.sent_bytes as f64 / self.sending.as_secs_f64().max(1e-9))
    }
}
