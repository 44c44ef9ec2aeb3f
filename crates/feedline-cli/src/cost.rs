//! `feedline cost`: measures the costs of samples, names the slow ones, and compares the costs with their predictions.
//!
//! In: a plan. Out: a [`Costing`] of one epoch, or of single samples under several seeds.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use feedline_data::plan::{Document, Registry, Shuffle};
use feedline_diagnose::CostReport;
use feedline_engine::loader::Loader;
use feedline_order::{Epoch, Ordinal, Sampler, Seed};
use serde::Serialize;

use crate::arguments::CostArguments;
use crate::interrupt::{Interrupt, POLL};
use crate::plan;
use crate::progress::Progress;

/// Columns of the longest bar.
const BAR_COLUMNS: usize = 40;
/// Number of runs of a sample. The fastest one counts.
const RUNS: usize = 3;

/// The costs of samples.
#[derive(Debug, Serialize)]
pub(crate) struct Costing {
    plan: PathBuf,
    #[serde(flatten)]
    found: CostFindings,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum CostFindings {
    Epoch(Box<CostReport>),
    Sample { sample: String, seeds: Vec<SeedCost> },
}

/// The cost of a sample with one seed.
#[derive(Debug, Serialize)]
struct SeedCost {
    seed: u64,
    total_ms: f64,
    ops: Vec<OpCost>,
}

#[derive(Debug, Serialize)]
struct OpCost {
    op: String,
    ms: f64,
}

impl fmt::Display for Costing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            CostFindings::Epoch(report) => show_epoch(report, f),
            CostFindings::Sample { sample, seeds } => show_sample(sample, seeds, f),
        }
    }
}

fn show_epoch(report: &CostReport, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let CostReport { samples, mean_ms, median_ms, p99_ms, slowest_ms, .. } = report;
    writeln!(
        f,
        "{samples} samples: mean {mean_ms:.2} ms, median {median_ms:.2}, p99 {p99_ms:.2}, slowest {slowest_ms:.2}"
    )?;
    let most = report.histogram.iter().map(|bar| bar.samples).max().unwrap_or(1);
    for bar in &report.histogram {
        // Rounded up, so that a bar with a single sample is still visible.
        let columns = (bar.samples * BAR_COLUMNS).div_ceil(most);
        writeln!(f, "  {:9.3} to {:9.3} ms {:8} {}", bar.from_ms, bar.to_ms, bar.samples, "#".repeat(columns))?;
    }
    writeln!(f, "slowest:")?;
    for slow in &report.slowest {
        writeln!(f, "  {:9.2} ms, predicted {:9.2}  {}", slow.ms, slow.predicted_ms, slow.key)?;
    }
    writeln!(f, "mean prediction error: {:.1} % of the mean cost", 100.0 * report.prediction_error)?;
    writeln!(
        f,
        "size explains {:.0} % of the variance, random draws explain {:.0} %",
        100.0 * report.explained_by_size,
        100.0 * report.explained_by_draws
    )
}

fn show_sample(sample: &str, seeds: &[SeedCost], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{sample:24}")?;
    seeds.iter().try_for_each(|cost| write!(f, " {:>14}", format!("seed {}", cost.seed)))?;
    let ops = seeds.first().map_or(0, |cost| cost.ops.len());
    for number in 0..ops {
        write!(f, "\n  {:22}", seeds[0].ops[number].op)?;
        seeds.iter().try_for_each(|cost| write!(f, " {:11.3} ms", cost.ops[number].ms))?;
    }
    write!(f, "\n  {:22}", "all")?;
    seeds.iter().try_for_each(|cost| write!(f, " {:11.3} ms", cost.total_ms))?;
    writeln!(f)
}

/// Measures the plan's samples, or one of them.
pub(crate) fn cost(typed: &CostArguments, registry: &Arc<Registry>, interrupt: &Interrupt<'_>) -> Result<Costing> {
    let document = plan::read(&typed.plan)?;
    let found = match &typed.sample {
        Some(sample) => of_sample(sample, &typed.seeds, &document, registry, interrupt),
        None => of_epoch(document, typed.slowest, registry, interrupt),
    };
    Ok(Costing { plan: typed.plan.clone(), found: found.with_context(|| format!("in plan {:?}", typed.plan))? })
}

fn of_epoch(
    document: Document,
    slowest: usize,
    registry: &Arc<Registry>,
    interrupt: &Interrupt<'_>,
) -> Result<CostFindings> {
    let opened = plan::open(document, registry, interrupt)?;
    let loader = plan::loader(Arc::clone(&opened));
    let is_known = loader.costs().iter().any(|cost| !cost.is_zero());
    // Without known costs, epoch 0 teaches them and epoch 1 is compared.
    let epoch = Epoch(u64::from(!is_known));
    let progress = Progress::new("batches", opened.batches_per_epoch() * (1 + epoch.0));
    loader.watch_costs(epoch);
    if !is_known {
        run_epoch(&loader, &progress, interrupt)?;
    }
    // Taken before the epoch that is measured, so that it is a prediction.
    let predicted = loader.costs();
    run_epoch(&loader, &progress, interrupt)?;
    let taken = loader.watched_costs();
    loader.close();
    Ok(CostFindings::Epoch(Box::new(CostReport::new(&opened, epoch, &predicted, &taken, slowest))))
}

fn run_epoch(loader: &Loader, progress: &Progress, interrupt: &Interrupt<'_>) -> Result<()> {
    let iteration = loader.begin()?;
    while plan::next(loader, iteration, interrupt)?.is_some() {
        progress.advance();
    }
    Ok(())
}

fn of_sample(
    sample: &str,
    seeds: &[u64],
    document: &Document,
    registry: &Arc<Registry>,
    interrupt: &Interrupt<'_>,
) -> Result<CostFindings> {
    let source = plan::open(document.clone(), registry, interrupt)?;
    let source = source.source();
    let ids = (0..source.len()).map(|ordinal| source.id_at(Ordinal(ordinal)));
    let id = ids.into_iter().find(|&id| source.key(id) == sample);
    let id = id.with_context(|| format!("there is no sample {sample:?}; give its key, as in batch[\"key\"]"))?;
    let mut found = Vec::new();
    for &seed in seeds {
        let mut document = document.clone();
        document.settings.seed = Seed(seed);
        // A plan with this one sample in batches of one, so that the counters of the loader belong to it alone.
        document.settings.sampler = Some(Sampler::List { indices: vec![id.0] });
        (document.settings.shuffle, document.settings.batch_size) = (Shuffle::Never, 1);
        document.config.prefetch_batches = Some(1);
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            runs.push(once(&document, seed, registry, interrupt)?);
        }
        // The minimum is the run that was disturbed least by other processes.
        found.extend(runs.into_iter().min_by(|a, b| a.total_ms.total_cmp(&b.total_ms)));
    }
    Ok(CostFindings::Sample { sample: sample.to_owned(), seeds: found })
}

/// Prepares a single sample and returns its cost by op.
fn once(document: &Document, seed: u64, registry: &Arc<Registry>, interrupt: &Interrupt<'_>) -> Result<SeedCost> {
    let loader = plan::loader(plan::open(document.clone(), registry, interrupt)?);
    let iteration = loader.begin()?;
    // Waits for the batch but does not take it: taking it could start the preparation of the next one.
    while !loader.wait_within(iteration, POLL)? {
        interrupt.check()?;
    }
    let snapshot = loader.snapshot();
    let ms = |seconds: f64| Duration::from_secs_f64(seconds).as_secs_f64() * 1e3;
    let read = OpCost { op: "read".to_owned(), ms: ms(snapshot.store.busy_seconds) };
    let ops = snapshot.ops.iter().map(|op| OpCost { op: op.name.clone(), ms: ms(op.busy_seconds) });
    let ops: Vec<OpCost> = std::iter::once(read).chain(ops).collect();
    Ok(SeedCost { seed, total_ms: ops.iter().map(|op| op.ms).sum(), ops })
}
