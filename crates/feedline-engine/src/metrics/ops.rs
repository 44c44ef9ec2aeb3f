//! What ops take, and the loading before them.
//!
//! In: times from preparer threads. Each thread adds up what it does in a [`Tally`] of its own, and tells it once a task, so that
//! threads with quick samples do not fight over counters. Out: totals by op.

use std::sync::Arc;
use std::time::Duration;

use super::{Counter, Metrics};

/// A thread tells what it did after this long, even if its task goes on.
const UNTOLD: Duration = Duration::from_millis(10);

/// Time and bytes of one op.
#[derive(Debug, Default)]
pub struct OpMeter {
    /// The op's name.
    pub name: Arc<str>,
    busy: Counter,
    samples: Counter,
    /// Of samples that were looked at: how many, their time, of which the processor computed, and bytes.
    looked_at: Counter,
    looked_at_busy: Counter,
    looked_at_cpu: Counter,
    looked_at_bytes: Counter,
    /// What was told of processor time and bytes of all: neither is seen to fall when a look finds less than those before.
    told_cpu: Counter,
    told_bytes: Counter,
}

/// What an op did.
#[derive(Clone, Copy, Debug)]
pub struct OpTotals {
    /// Time of threads in it.
    pub busy: Duration,
    /// Their processor time, as that of the samples that were looked at.
    pub cpu: Duration,
    /// Bytes of the fields that it left, likewise.
    pub bytes_out: u64,
    /// Applications.
    pub samples: u64,
}

impl OpMeter {
    /// Nothing was done yet.
    pub fn new(name: &Arc<str>) -> Self {
        Self { name: Arc::clone(name), ..Self::default() }
    }

    /// All of it.
    pub fn read(&self) -> OpTotals {
        let (busy, samples) = (self.busy.time(), self.samples.get());
        let share = self.looked_at_cpu.get() as f64 / self.looked_at_busy.get().max(1) as f64;
        let bytes =
            u128::from(self.looked_at_bytes.get()) * u128::from(samples) / u128::from(self.looked_at.get().max(1));
        let cpu = self.told_cpu.raise(busy.mul_f64(share.min(1.0)).as_nanos() as u64);
        OpTotals { busy, cpu: Duration::from_nanos(cpu), bytes_out: self.told_bytes.raise(bytes as u64), samples }
    }
}

/// What is looked at of one application now and then, because that takes time.
#[derive(Clone, Copy, Debug)]
pub struct OpMeasurement {
    /// Processor time.
    pub cpu: Duration,
    /// Bytes of the fields that it left.
    pub bytes_out: usize,
}

/// What one thread did and has not told yet.
#[derive(Debug)]
pub struct Tally {
    loading_nanos: u64,
    loaded: u64,
    ops: Vec<OpTally>,
    /// The time of all of it.
    untold_nanos: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct OpTally {
    busy_nanos: u64,
    samples: u64,
    looked_at: u64,
    looked_at_busy_nanos: u64,
    looked_at_cpu_nanos: u64,
    looked_at_bytes: u64,
}

impl Tally {
    /// Of a thread that prepares samples with so many ops.
    pub fn new(ops: usize) -> Self {
        Self { loading_nanos: 0, loaded: 0, ops: vec![OpTally::default(); ops], untold_nanos: 0 }
    }

    /// Books a sample that was loaded.
    pub(crate) fn add_loading(&mut self, busy: Duration) {
        let nanos = busy.as_nanos() as u64;
        self.loading_nanos += nanos;
        self.loaded += 1;
        self.untold_nanos += nanos;
    }

    /// Books one application of an op, which may have been looked at.
    pub(crate) fn add_op(&mut self, number: usize, busy: Duration, look: Option<OpMeasurement>) {
        let (op, nanos) = (&mut self.ops[number], busy.as_nanos() as u64);
        op.busy_nanos += nanos;
        op.samples += 1;
        self.untold_nanos += nanos;
        if let Some(OpMeasurement { cpu, bytes_out }) = look {
            op.looked_at += 1;
            op.looked_at_busy_nanos += nanos;
            op.looked_at_cpu_nanos += cpu.as_nanos() as u64;
            op.looked_at_bytes += bytes_out as u64;
        }
    }

    /// Whether it has waited long enough.
    pub fn is_due(&self) -> bool {
        self.untold_nanos > UNTOLD.as_nanos() as u64
    }

    /// Tells all of it.
    pub fn tell(&mut self, metrics: &Metrics) {
        metrics.loading.add(Duration::from_nanos(self.loading_nanos), self.loaded);
        (self.loading_nanos, self.loaded, self.untold_nanos) = (0, 0, 0);
        for (meter, tally) in metrics.ops.iter().zip(&mut self.ops) {
            let told = std::mem::take(tally);
            meter.busy.add(told.busy_nanos);
            meter.samples.add(told.samples);
            if told.looked_at > 0 {
                meter.looked_at.add(told.looked_at);
                meter.looked_at_busy.add(told.looked_at_busy_nanos);
                meter.looked_at_cpu.add(told.looked_at_cpu_nanos);
                meter.looked_at_bytes.add(told.looked_at_bytes);
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
            tally.add_loading(MS);
            tally.add_op(0, 4 * MS, Some(OpMeasurement { cpu: 2 * MS, bytes_out: 7 }));
            assert!(!tally.is_due());
            tally.add_op(0, 8 * MS, None);
            assert!(tally.is_due());
            tally.tell(&metrics);
            tally.tell(&metrics);
        }
        let OpTotals { busy, cpu, bytes_out, samples } = metrics.ops[0].read();
        assert_eq!((busy, cpu, bytes_out, samples), (24 * MS, 12 * MS, 28, 4));
        assert_eq!(metrics.loading.read().samples, 2);
        let mut tally = Tally::new(1);
        tally.add_op(0, MS, Some(OpMeasurement { cpu: Duration::ZERO, bytes_out: 0 }));
        tally.tell(&metrics);
        let after = metrics.ops[0].read();
        assert!((after.cpu, after.bytes_out) >= (cpu, bytes_out), "neither falls: {after:?}");
    }
}
