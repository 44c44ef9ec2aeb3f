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
    /// Processor time of samples of which it was taken, and their time.
    cpu: Counter,
    clocked: Counter,
    bytes_out: Counter,
    samples: Counter,
}

/// What an op did.
#[derive(Clone, Copy, Debug)]
pub struct OpTotals {
    /// Time of threads in it.
    pub busy: Duration,
    /// Their processor time, from the samples of which it was taken.
    pub cpu: Duration,
    /// Bytes of the fields that it left.
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
        let share = self.cpu.get() as f64 / self.clocked.get().max(1) as f64;
        OpTotals { busy, cpu: busy.mul_f64(share.min(1.0)), bytes_out: self.bytes_out.get(), samples }
    }
}

/// What one thread did and has not told yet.
#[derive(Debug)]
pub struct Tally {
    loading: Duration,
    loaded: u64,
    ops: Vec<OpTally>,
    /// The time of all of it.
    untold: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct OpTally {
    busy: Duration,
    cpu: Duration,
    clocked: Duration,
    bytes_out: u64,
    samples: u64,
}

impl Tally {
    /// Of a thread that prepares samples with so many ops.
    pub fn new(ops: usize) -> Self {
        Self { loading: Duration::ZERO, loaded: 0, ops: vec![OpTally::default(); ops], untold: Duration::ZERO }
    }

    /// Books a sample that was loaded.
    pub fn add_loading(&mut self, busy: Duration) {
        self.loading += busy;
        self.loaded += 1;
        self.untold += busy;
    }

    /// Books one application of an op, with its processor time where that was taken.
    pub fn add_op(&mut self, number: usize, busy: Duration, cpu: Option<Duration>, bytes_out: usize) {
        let op = &mut self.ops[number];
        op.busy += busy;
        if let Some(cpu) = cpu {
            op.cpu += cpu;
            op.clocked += busy;
        }
        op.bytes_out += bytes_out as u64;
        op.samples += 1;
        self.untold += busy;
    }

    /// Whether it has waited long enough.
    pub fn is_due(&self) -> bool {
        self.untold > UNTOLD
    }

    /// Tells all of it.
    pub fn tell(&mut self, metrics: &Metrics) {
        metrics.loading.add(std::mem::take(&mut self.loading), std::mem::take(&mut self.loaded));
        for (meter, tally) in metrics.ops.iter().zip(&mut self.ops) {
            let OpTally { busy, cpu, clocked, bytes_out, samples } = std::mem::take(tally);
            meter.busy.add_time(busy);
            meter.cpu.add_time(cpu);
            meter.clocked.add_time(clocked);
            meter.bytes_out.add(bytes_out);
            meter.samples.add(samples);
        }
        self.untold = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::open;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_threads_told_adds_up_and_is_told_once() {
        let text = "batch_size = 1\n[source]\nkind = \"synthetic\"\nn = 10\nshape = [4, 4, 3]\n[[ops]]\nop = \"Normalize\"\non = \"data\"\n";
        let metrics = Metrics::new(&open(text).unwrap());
        for _ in 0..2 {
            let mut tally = Tally::new(1);
            tally.add_loading(MS);
            tally.add_op(0, 4 * MS, Some(2 * MS), 7);
            assert!(!tally.is_due());
            tally.add_op(0, 8 * MS, None, 7);
            assert!(tally.is_due());
            tally.tell(&metrics);
            tally.tell(&metrics);
        }
        let OpTotals { busy, cpu, bytes_out, samples } = metrics.ops[0].read();
        assert_eq!((busy, cpu, bytes_out, samples), (24 * MS, 12 * MS, 28, 4));
        assert_eq!(metrics.loading.read().samples, 2);
    }
}
