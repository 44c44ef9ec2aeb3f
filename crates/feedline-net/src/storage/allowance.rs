//! Limits what all threads together use per second.
//!
//! In: the amount that a thread uses. Out: how long it waits. A thread that uses more than is available goes into debt and waits
//! until it is paid. So the average rate holds, whatever the amounts.

use std::thread;
use std::time::{Duration, Instant};

use feedline_memory::Mutex;

/// A token bucket.
#[derive(Debug)]
pub(super) struct Allowance {
    /// The amount available after a pause.
    burst: f64,
    state: Mutex<AllowanceState>,
}

#[derive(Debug)]
struct AllowanceState {
    per_second: f64,
    /// The amount available now. Negative while threads wait.
    left: f64,
    at: Instant,
}

impl Allowance {
    pub(super) fn new(per_second: f64, burst: f64) -> Self {
        Self { burst, state: Mutex::new(AllowanceState { per_second, left: burst, at: Instant::now() }) }
    }

    /// Uses an amount and waits until it is available.
    pub(super) fn wait(&self, amount: f64) {
        // Sleeps without the lock, so other threads go into debt meanwhile and wait in parallel.
        let debt = self.take(amount, Instant::now());
        if !debt.is_zero() {
            thread::sleep(debt);
        }
    }

    /// Changes the rate.
    pub(super) fn set(&self, per_second: f64) {
        self.state.lock().per_second = per_second;
    }

    fn take(&self, amount: f64, now: Instant) -> Duration {
        let mut state = self.state.lock();
        let passed = now.saturating_duration_since(state.at).as_secs_f64();
        // Refilled for the time since the last call, at most up to `burst`, then charged. The result may be negative.
        state.left = (state.left + passed * state.per_second).min(self.burst) - amount;
        // Another thread may have taken the lock with a later time in between. The clock never goes back.
        state.at = state.at.max(now);
        // The time in which the rate refills the debt.
        Duration::from_secs_f64((-state.left / state.per_second).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_used_up_at_the_rate_after_a_burst() {
        let allowance = Allowance::new(1e6, 64e3);
        let start = Instant::now();
        assert_eq!(allowance.take(16e3, start), Duration::ZERO);
        let mut waited = Duration::ZERO;
        for _ in 0..100 {
            waited = allowance.take(10e3, start);
        }
        let expected = (1000e3 + 16e3 - 64e3) / 1e6;
        assert!((waited.as_secs_f64() - expected).abs() < 0.01, "{waited:?} of {expected}");
        assert_eq!(allowance.take(1e3, start + Duration::from_secs(5)), Duration::ZERO);
    }

    #[test]
    fn a_rate_that_is_changed_holds_from_then_on() {
        let allowance = Allowance::new(1000.0, 0.0);
        let start = Instant::now();
        assert!((allowance.take(1000.0, start).as_secs_f64() - 1.0).abs() < 0.01);
        allowance.set(100.0);
        assert!((allowance.take(0.0, start).as_secs_f64() - 10.0).abs() < 0.1);
    }
}
