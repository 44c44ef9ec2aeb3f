//! `feedline run`: runs a plan at full speed and reports its throughput.
//!
//! In: a plan, and how much of it to run. Out: a [`Report`]. The batches are dropped at once, so this measures the loader alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use feedline_data::plan::{Registry, Workers};
use feedline_engine::loader::Loader;
use feedline_engine::metrics::Snapshot;

use crate::arguments::RunArguments;
use crate::interrupt::Interrupt;
use crate::plan;
use crate::progress::Progress;
use crate::report::{EpochReport, Report, start_seconds};

/// Interval between two updates of the text after the progress bar.
const SHOW_EVERY: Duration = Duration::from_millis(200);

/// Runs the plan.
pub(crate) fn run(typed: RunArguments, registry: &Arc<Registry>, interrupt: &Interrupt<'_>) -> Result<Report> {
    let mut document = plan::read(&typed.plan)?;
    if let Some(workers) = typed.num_workers {
        document.config.num_workers = Workers::Count(workers);
    }
    let opened = plan::open(document, registry, interrupt).with_context(|| format!("in plan {:?}", typed.plan))?;
    let most_batches = typed.batches.unwrap_or(u64::MAX);
    let batches_per_epoch = opened.batches_per_epoch().min(most_batches);
    let loader = plan::loader(opened);
    let progress = Progress::new("batches", batches_per_epoch.saturating_mul(typed.epochs));
    let mut pace = Pace { start: Instant::now(), first_batch: None, shown: Instant::now(), progress };
    // The error, if any, is returned after the loader is closed.
    let epochs: Result<Vec<_>> =
        (0..typed.epochs).map(|_| run_epoch(&loader, most_batches, &mut pace, interrupt)).collect();
    let seconds = pace.start.elapsed().as_secs_f64();
    let snapshot = loader.snapshot();
    loader.close();
    Ok(Report::new(typed.plan, seconds, pace.first_batch, epochs?, snapshot))
}

/// The clock of a run, and its progress bar.
struct Pace {
    start: Instant,
    /// Time from the start to the first batch.
    first_batch: Option<Duration>,
    /// When the text after the bar was last updated.
    shown: Instant,
    progress: Progress,
}

impl Pace {
    fn batch_received(&mut self, loader: &Loader) {
        self.first_batch.get_or_insert(self.start.elapsed());
        self.progress.advance();
        if self.shown.elapsed() > SHOW_EVERY {
            self.shown = Instant::now();
            let seconds = self.start.elapsed().as_secs_f64();
            self.progress.show(|| live_numbers(&loader.snapshot(), seconds));
        }
    }
}

fn live_numbers(snapshot: &Snapshot, seconds: f64) -> String {
    // Not zero, because it is a divisor below.
    let running = (seconds - start_seconds(snapshot)).max(f64::MIN_POSITIVE);
    format!(
        "{:.0} samples/s, {:.1} MB/s, waited {:.0} %",
        snapshot.samples as f64 / seconds,
        snapshot.content_bytes as f64 / 1e6 / seconds,
        100.0 * snapshot.stalled_seconds() / running
    )
}

fn run_epoch(loader: &Loader, most_batches: u64, pace: &mut Pace, interrupt: &Interrupt<'_>) -> Result<EpochReport> {
    let (start, before) = (Instant::now(), loader.snapshot());
    let epoch = loader.upcoming_epoch();
    let iteration = loader.begin()?;
    let (mut batches, mut samples) = (0, 0);
    while batches < most_batches
        && let Some(batch) = plan::next(loader, iteration, interrupt)?
    {
        batches += 1;
        samples += batch.len as u64;
        pace.batch_received(loader);
    }
    Ok(EpochReport::new(epoch.0, batches, samples, start.elapsed(), &before, &loader.snapshot()))
}
