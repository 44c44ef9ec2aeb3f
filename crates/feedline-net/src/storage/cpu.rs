//! The processor time of a server: counted, and limited to a number of cores that need not be whole.
//!
//! Every thread that works for clients charges what it has used, piece by piece, and waits while all together have used more
//! than they may.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use feedline_data::cpu_time::thread_cpu_time;

use super::allowance::Allowance;

/// Seconds of processor time that may be used at once after a pause, for each core.
const BURST_SECONDS: f64 = 0.02;

/// The processor time of a server.
#[derive(Debug)]
pub(super) struct Cpu {
    cores: f64,
    allowance: Allowance,
    spent_nanoseconds: AtomicU64,
}

impl Cpu {
    pub(super) fn new(cpus: f64) -> Self {
        Self {
            cores: cpus,
            allowance: Allowance::new(cpus, cpus * BURST_SECONDS),
            spent_nanoseconds: AtomicU64::new(0),
        }
    }

    /// Cores that may be used.
    pub(super) fn cores(&self) -> f64 {
        self.cores
    }

    /// The meter of the thread that asks for it.
    pub(super) fn meter(&self) -> CpuMeter<'_> {
        CpuMeter { cpu: self, charged: thread_cpu_time() }
    }

    /// What was used so far.
    pub(super) fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent_nanoseconds.load(Ordering::Relaxed))
    }
}

/// What one thread uses; it stays in that thread.
#[derive(Debug)]
pub(super) struct CpuMeter<'a> {
    cpu: &'a Cpu,
    /// The clock of the thread when it charged last.
    charged: Duration,
}

impl CpuMeter<'_> {
    /// Charges what was used since the last time, and waits if that is too much.
    pub(super) fn charge(&mut self) {
        let now = thread_cpu_time();
        let used = now.saturating_sub(self.charged);
        self.charged = now;
        self.cpu.spent_nanoseconds.fetch_add(used.as_nanos() as u64, Ordering::Relaxed);
        self.cpu.allowance.wait(used.as_secs_f64());
    }
}
