//! Measures the CPU time of a server, and limits it to a number of cores, which may be fractional.
//!
//! Every thread that works for clients charges its CPU time piece by piece, and waits while all threads together exceed the limit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use feedline_data::cpu_time::thread_cpu_time;

use super::allowance::Allowance;

/// CPU seconds per core that may be used at once after a pause.
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

    /// The limit in cores.
    pub(super) fn cores(&self) -> f64 {
        self.cores
    }

    /// A meter for the calling thread.
    pub(super) fn meter(&self) -> CpuMeter<'_> {
        CpuMeter { cpu: self, charged: thread_cpu_time() }
    }

    /// CPU time used so far.
    pub(super) fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent_nanoseconds.load(Ordering::Relaxed))
    }
}

/// The CPU time of one thread.
#[derive(Debug)]
pub(super) struct CpuMeter<'a> {
    cpu: &'a Cpu,
    /// The thread's CPU clock at the last charge.
    charged: Duration,
}

impl CpuMeter<'_> {
    /// Charges the time since the last call, and waits if the limit is exceeded.
    pub(super) fn charge(&mut self) {
        let now = thread_cpu_time();
        let used = now.saturating_sub(self.charged);
        self.charged = now;
        self.cpu.spent_nanoseconds.fetch_add(used.as_nanos() as u64, Ordering::Relaxed);
        // Waits after the work, not before: the CPU time of a request is known only then. The debt delays the next request.
        self.cpu.allowance.wait(used.as_secs_f64());
    }
}
