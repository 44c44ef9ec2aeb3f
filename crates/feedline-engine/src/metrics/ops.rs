//! Measures the ops, and the loading before them.
//!
//! In: times from preparer threads. Each thread adds up its times in a [`Tally`] and adds that to the shared counters once per
//! task. So threads with fast samples do not contend for the counters. Out: totals per op.

use std::sync::Arc;
use std::time::Duration;

use super::{Counter, Metrics};

/// A thread updates the shared counters after this long, even within a task.
const FLUSH_AFTER: Duration = Duration::from_millis(10);

/// Measures one op.
#[derive(Debug, Default)]
pub struct OpMeter {
    /// The op's name.
    pub name: Arc<str>,
    busy: Counter,
    samples: Counter,
    /// Measured applications only: their number, time, CPU time and bytes.
    measured: Counter,
    measured_busy: Counter,
    measured_cpu: Counter,
    measured_bytes: Counter,
    /// The largest estimates so far of CPU time and bytes of all applications. The snapshot must not decrease when a new
    /// measurement is smaller.
    reported_cpu: Counter,
    reported_bytes: Counter,
}

/// The totals of one op.
#[derive(Clone, Copy, Debug)]
pub struct OpTotals {
    /// Time of threads.
    pub busy: Duration,
    /// CPU time, extrapolated from the measured applications.
    pub cpu: Duration,
    /// Bytes of the resulting fields, extrapolated likewise.
    pub bytes_out: u64,
    /// Number of applications.
    pub samples: u64,
}

impl OpMeter {
    /// A meter at zero.
    pub fn new(name: &Arc<str>) -> Self {
        Self { name: Arc::clone(name), ..Self::default() }
    }

    /// The totals.
    pub fn read(&self) -> OpTotals {
        let (busy, samples) = (self.busy.time(), self.samples.get());
        // CPU time is measured for a part of the applications. Their ratio to busy time holds for all.
        let share = self.measured_cpu.get() as f64 / self.measured_busy.get().max(1) as f64;
        let bytes =
            // Mean bytes times number of samples. In 128 bits, because the product overflows 64.
            u128::from(self.measured_bytes.get()) * u128::from(samples) / u128::from(self.measured.get().max(1));
        // An extrapolated value may shrink with a new measurement, but counters must be monotonic.
        let cpu = self.reported_cpu.raise(busy.mul_f64(share.min(1.0)).as_nanos() as u64);
        OpTotals { busy, cpu: Duration::from_nanos(cpu), bytes_out: self.reported_bytes.raise(bytes as u64), samples }
    }
}

/// A measurement of one application. Only some are measured, because that takes time.
#[derive(Clone, Copy, Debug)]
pub struct OpMeasurement {
    /// CPU time.
    pub cpu: Duration,
    /// Bytes of the resulting fields.
    pub bytes_out: usize,
}

/// Times of one thread that the shared counters do not contain yet.
#[derive(Debug)]
pub struct Tally {
    loading_nanos: u64,
    loaded: u64,
    ops: Vec<OpTally>,
    /// The sum of these times.
    unflushed_nanos: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct OpTally {
    busy_nanos: u64,
    samples: u64,
    measured: u64,
    measured_busy_nanos: u64,
    measured_cpu_nanos: u64,
    measured_bytes: u64,
}

impl Tally {
    /// A tally for a chain of so many ops.
    pub fn new(ops: usize) -> Self {
        Self { loading_nanos: 0, loaded: 0, ops: vec![OpTally::default(); ops], unflushed_nanos: 0 }
    }

    /// Adds loaded samples that took `busy` together.
    pub(crate) fn add_loading(&mut self, busy: Duration, samples: u64) {
        let nanos = busy.as_nanos() as u64;
        self.loading_nanos += nanos;
        self.loaded += samples;
        self.unflushed_nanos += nanos;
    }

    /// Adds one application of an op, with its measurement if there is one.
    pub(crate) fn add_op(&mut self, number: usize, busy: Duration, measurement: Option<OpMeasurement>) {
        let (op, nanos) = (&mut self.ops[number], busy.as_nanos() as u64);
        op.busy_nanos += nanos;
        op.samples += 1;
        self.unflushed_nanos += nanos;
        if let Some(OpMeasurement { cpu, bytes_out }) = measurement {
            op.measured += 1;
            op.measured_busy_nanos += nanos;
            op.measured_cpu_nanos += cpu.as_nanos() as u64;
            op.measured_bytes += bytes_out as u64;
        }
    }

    /// Whether the shared counters should be updated.
    pub fn is_due(&self) -> bool {
        self.unflushed_nanos > FLUSH_AFTER.as_nanos() as u64
    }

    /// Adds everything to the shared counters.
    pub fn flush(&mut self, metrics: &Metrics) {
        metrics.loading.add(Duration::from_nanos(self.loading_nanos), self.loaded);
        (self.loading_nanos, self.loaded, self.unflushed_nanos) = (0, 0, 0);
        for (meter, tally) in metrics.ops.iter().zip(&mut self.ops) {
            let flushed = std::mem::take(tally);
            meter.busy.add(flushed.busy_nanos);
            meter.samples.add(flushed.samples);
            if flushed.measured > 0 {
                meter.measured.add(flushed.measured);
                meter.measured_busy.add(flushed.measured_busy_nanos);
                meter.measured_cpu.add(flushed.measured_cpu_nanos);
                meter.measured_bytes.add(flushed.measured_bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_data::testing::open;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_threads_told_adds_up_and_is_told_once() {
        let text = "batch_size = 1\n[source]\nkind = \"synthetic\"\nn = 10\nshape = [4, 4, 3]\n[[ops]]\nop = \"Normalize\"\non = \"data\"\n";
        let metrics = Metrics::new(&open(text).unwrap());
        for _ in 0..2 {
            let mut tally = Tally::new(1);
            tally.add_loading(MS, 1);
            tally.add_op(0, 4 * MS, Some(OpMeasurement { cpu: 2 * MS, bytes_out: 7 }));
            assert!(!tally.is_due());
            tally.add_op(0, 8 * MS, None);
            assert!(tally.is_due());
            tally.flush(&metrics);
            tally.flush(&metrics);
        }
        let OpTotals { busy, cpu, bytes_out, samples } = metrics.ops[0].read();
        assert_eq!((busy, cpu, bytes_out, samples), (24 * MS, 12 * MS, 28, 4));
        assert_eq!(metrics.loading.read().samples, 2);
        let mut tally = Tally::new(1);
        tally.add_op(0, MS, Some(OpMeasurement { cpu: Duration::ZERO, bytes_out: 0 }));
        tally.flush(&metrics);
        let after = metrics.ops[0].read();
        assert!((after.cpu, after.bytes_out) >= (cpu, bytes_out), "neither falls: {after:?}");
    }
}
