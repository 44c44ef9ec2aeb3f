//! The results of a run, as text and JSON. The names of the fields are part of the interface.

use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use feedline_data::plan::ByteSize;
use feedline_engine::metrics::{Phase, Snapshot};
use serde::Serialize;

/// The results of a run. MB are 10^6 bytes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    plan: PathBuf,
    samples: u64,
    batches: u64,
    seconds: f64,
    samples_per_second: f64,
    store_mb_per_second: f64,
    delivered_mb_per_second: f64,
    /// Fraction of the time in which the consumer waited, without the start.
    stall_share: f64,
    /// Seconds until the first batch. `None` if there was none.
    first_batch_seconds: Option<f64>,
    epochs: Vec<EpochReport>,
    snapshot: Snapshot,
}

/// The results of one epoch.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EpochReport {
    /// Its number.
    pub epoch: u64,
    /// Number of received batches.
    pub batches: u64,
    /// Number of received samples.
    pub samples: u64,
    /// Seconds from the first request to the last batch.
    pub seconds: f64,
    /// `samples / seconds`.
    pub samples_per_second: f64,
    /// Fraction of the time in which the consumer waited, without the start.
    pub stall_share: f64,
}

impl EpochReport {
    /// The results between two snapshots.
    pub(crate) fn new(
        epoch: u64,
        batches: u64,
        samples: u64,
        time: Duration,
        before: &Snapshot,
        after: &Snapshot,
    ) -> Self {
        let seconds = time.as_secs_f64();
        // The wait for the first batch is reported separately, so it counts neither as a stall nor as running time.
        let start = start_seconds(after) - start_seconds(before);
        Self {
            epoch,
            batches,
            samples,
            seconds,
            samples_per_second: ratio(samples as f64, seconds),
            stall_share: ratio(after.stalled_seconds() - before.stalled_seconds(), seconds - start),
        }
    }
}

impl Report {
    /// Combines the results of all epochs.
    pub(crate) fn new(
        plan: PathBuf,
        seconds: f64,
        first_batch: Option<Duration>,
        epochs: Vec<EpochReport>,
        snapshot: Snapshot,
    ) -> Self {
        let samples = epochs.iter().map(|epoch| epoch.samples).sum();
        Self {
            plan,
            samples,
            batches: epochs.iter().map(|epoch| epoch.batches).sum(),
            seconds,
            samples_per_second: ratio(samples as f64, seconds),
            store_mb_per_second: ratio(snapshot.store.bytes as f64 / 1e6, seconds),
            delivered_mb_per_second: ratio(snapshot.content_bytes as f64 / 1e6, seconds),
            stall_share: ratio(snapshot.stalled_seconds(), seconds - start_seconds(&snapshot)),
            first_batch_seconds: first_batch.map(|time| time.as_secs_f64()),
            epochs,
            snapshot,
        }
    }
}

/// Seconds that the consumer waited for the first batch after a start or a jump.
pub(crate) fn start_seconds(snapshot: &Snapshot) -> f64 {
    snapshot.stall_seconds.get(Phase::Start.name()).copied().unwrap_or_default()
}

/// `part / whole`, or 0 if `whole` is not positive.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let snapshot = &self.snapshot;
        let mut line = |name: &str, value: String| writeln!(f, "{name:<18}{value}");
        let epochs = match self.epochs.len() {
            1 => "1 epoch".to_owned(),
            count => format!("{count} epochs"),
        };
        line("samples", format!("{} in {} batches, {epochs}", self.samples, self.batches))?;
        line("seconds", format!("{:.2}, {} workers", self.seconds, snapshot.num_workers))?;
        line("samples/s", format!("{:.1}", self.samples_per_second))?;
        line("read from store", format!("{:.1} MB/s", self.store_mb_per_second))?;
        line("delivered", format!("{:.1} MB/s", self.delivered_mb_per_second))?;
        line("stalled", self.stalls()?)?;
        if let Some(seconds) = self.first_batch_seconds {
            line("first batch", format!("{seconds:.3} s"))?;
        }
        let (peak, budget) = (ByteSize(snapshot.memory.peak_bytes), ByteSize(snapshot.memory.budget_bytes));
        line("memory", format!("peak {peak} of {budget}"))?;
        let seek = &snapshot.seek_index;
        if seek.made + seek.not_seekable > 0 {
            let size = ByteSize(seek.made_bytes);
            line("seek indexes", format!("{} built, {size}, {:.2} s of thread time", seek.made, seek.busy_seconds))?;
        }
        if snapshot.cache.hits + snapshot.cache.misses > 0 {
            line("cache", format!("{} hits, {} misses", snapshot.cache.hits, snapshot.cache.misses))?;
        }
        if snapshot.substituted > 0 {
            line("substitutes", self.substitutes())?;
        }
        if self.epochs.len() > 1 {
            writeln!(f, "\n{:<18}{:>12}{:>12}{:>12}", "epoch", "seconds", "samples/s", "stalled")?;
            for epoch in &self.epochs {
                let stalled = format!("{:.1} %", 100.0 * epoch.stall_share);
                let EpochReport { epoch, seconds, samples_per_second, .. } = epoch;
                writeln!(f, "{epoch:<18}{seconds:>12.2}{samples_per_second:>12.1}{stalled:>12}")?;
            }
        }
        self.write_stages(f)
    }
}

impl Report {
    fn stalls(&self) -> Result<String, fmt::Error> {
        let mut text = format!("{:.1} %", 100.0 * self.stall_share);
        let causes = self.snapshot.stall_seconds.iter().filter(|(_, seconds)| **seconds > 0.0);
        for (number, (cause, seconds)) in causes.enumerate() {
            write!(text, "{} {cause} {seconds:.2} s", if number == 0 { ":" } else { "," })?;
        }
        Ok(text)
    }

    fn substitutes(&self) -> String {
        let first = self.snapshot.substitutes.first();
        let example = first.map(|one| format!(", e.g. {:?} by {:?}: {}", one.bad, one.by, one.reason));
        format!("{}{}", self.snapshot.substituted, example.unwrap_or_default())
    }

    /// Time and bytes of the store and of each op.
    fn write_stages(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = &self.snapshot.store;
        let read = ("(read)", store.busy_seconds, store.bytes);
        let ops = self.snapshot.ops.iter().map(|op| (op.name.as_str(), op.busy_seconds, op.bytes_out));
        let stages: Vec<_> = std::iter::once(read).chain(ops).collect();
        // Shares are relative to the sum of all stages, not to the duration of the run.
        let busy: f64 = stages.iter().map(|(_, seconds, _)| seconds).sum();
        let longest = stages.iter().map(|(name, ..)| name.len()).max().unwrap_or(0).max(16);
        writeln!(f, "\n{:<longest$}  {:>12}{:>12}{:>12}", "op", "busy s", "share", "bytes out")?;
        for (name, seconds, bytes) in stages {
            let share = format!("{:.1} %", 100.0 * ratio(seconds, busy));
            writeln!(f, "{name:<longest$}  {seconds:>12.3}{share:>12}{:>12}", ByteSize(bytes).to_string())?;
        }
        Ok(())
    }
}
