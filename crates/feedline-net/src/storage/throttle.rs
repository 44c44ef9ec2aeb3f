//! A limit on what a server sends, for experiments with slow links.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that may be sent at once after a pause: what a switch would buffer.
const BURST_BYTES: f64 = 64.0 * 1024.0;
/// Bytes that are sent between two looks at the clock.
pub(super) const PIECE_BYTES: usize = 16 * 1024;

/// A token bucket shared by all connections.
#[derive(Debug)]
pub(super) struct Throttle {
    bytes_per_second: f64,
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    /// What may be sent now; below zero while somebody waits for bytes that were promised.
    bytes: f64,
    at: Instant,
}

impl Throttle {
    pub fn new(megabits_per_second: f64) -> Self {
        let bucket = Bucket { bytes: BURST_BYTES, at: Instant::now() };
        Self { bytes_per_second: megabits_per_second * 1e6 / 8.0, bucket: Mutex::new(bucket) }
    }

    /// Waits until `bytes` may be sent.
    pub fn wait(&self, bytes: usize) {
        thread::sleep(self.take(bytes, Instant::now()));
    }

    fn take(&self, bytes: usize, now: Instant) -> Duration {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.bytes = (bucket.bytes + passed * self.bytes_per_second).min(BURST_BYTES) - bytes as f64;
        bucket.at = bucket.at.max(now);
        Duration::from_secs_f64((-bucket.bytes / self.bytes_per_second).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_at_the_rate_after_a_burst() {
        let throttle = Throttle::new(8.0);
        let start = Instant::now();
        assert_eq!(throttle.take(PIECE_BYTES, start), Duration::ZERO);
        let mut waited = Duration::ZERO;
        for _ in 0..100 {
            waited = throttle.take(10_000, start);
        }
        let expected = (1_000_000.0 + PIECE_BYTES as f64 - BURST_BYTES) / 1e6;
        assert!((waited.as_secs_f64() - expected).abs() < 0.01, "{waited:?} of {expected}");
        assert_eq!(throttle.take(1000, start + Duration::from_secs(5)), Duration::ZERO);
    }
}
