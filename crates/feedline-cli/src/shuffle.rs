//! `feedline shuffle`: compares the shuffle of a plan with a full shuffle.
//!
//! In: a plan. Out: a [`Shuffling`], and plots on request. It uses the order and the classes, but reads no data.

mod plots;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use feedline_data::plan::{Registry, ShuffleReport};
use feedline_order::{Distances, Epoch, Labels, Quality};
use serde::Serialize;

use crate::arguments::ShuffleArguments;
use crate::interrupt::Interrupt;
use crate::plan;
use crate::plot::Drawing;

/// The quality of a shuffle.
#[derive(Debug, Serialize)]
pub(crate) struct Shuffling {
    plan: PathBuf,
    epoch: u64,
    #[serde(flatten)]
    report: ShuffleReport,
}

impl fmt::Display for Shuffling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShuffleReport { samples, reservoir, reservoir_bytes, blocks, stored, plan, full, warning, .. } =
            &self.report;
        match (reservoir, reservoir_bytes, blocks) {
            (Some(size), Some(bytes), Some(blocks)) => writeln!(
                f,
                "{samples} samples in {blocks} blocks, through a reservoir of {size} (about {:.0} MB)",
                *bytes as f64 / 1e6
            )?,
            _ => writeln!(f, "{samples} samples")?,
        }
        writeln!(f, "{:44} {:>10} {:>10} {:>10}", "", "stored", "plan", "full")?;
        let all = [stored, plan, full];
        let distances = |of: fn(&Quality) -> Distances, share: fn(Distances) -> f64| {
            all.map(|quality| format!("{:.3}", share(of(quality))))
        };
        row(f, "displacement, fraction of an epoch: mean", &distances(|q| q.displacement, |d| d.mean))?;
        row(f, "  5 % are below", &distances(|q| q.displacement, |d| d.p5))?;
        row(f, "  95 % are below", &distances(|q| q.displacement, |d| d.p95))?;
        row(f, "distance of stored neighbours: mean", &distances(|q| q.neighbours, |d| d.mean))?;
        row(f, "  5 % are below", &distances(|q| q.neighbours, |d| d.p5))?;
        row(f, "  median", &distances(|q| q.neighbours, |d| d.median))?;
        row(f, "  95 % are below", &distances(|q| q.neighbours, |d| d.p95))?;
        row(f, "pairs in one batch in two epochs", &all.map(|quality| quality.meet_again.to_string()))?;
        row(f, "  by chance", &all.map(|quality| format!("{:.0}", quality.meet_again_by_chance)))?;
        if let (Some(stored), Some(plan), Some(full)) = (stored.labels, plan.labels, full.labels) {
            let all = [stored, plan, full];
            let of = |show: fn(&Labels) -> String| [show(&all[0]), show(&all[1]), show(&all[2])];
            row(f, "next sample has the same class, %", &of(|l| format!("{:.1}", 100.0 * l.same_next)))?;
            row(f, "  beyond chance (0 to 1)", &of(|l| format!("{:.3}", l.correlation)))?;
            row(f, "samples of one class in a row: mean", &of(|l| format!("{:.2}", l.mean_run)))?;
            row(f, "  longest", &of(|l| l.longest_run.to_string()))?;
            row(f, "classes in a batch", &of(|l| format!("{:.1}", l.classes_per_batch)))?;
        } else {
            writeln!(f, "no results for classes, because not all samples have one")?;
        }
        match warning {
            Some(warning) => writeln!(f, "warning: {warning}"),
            None => Ok(()),
        }
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, [stored, plan, full]: &[String; 3]) -> fmt::Result {
    writeln!(f, "{name:44} {stored:>10} {plan:>10} {full:>10}")
}

/// Analyses the order of a plan.
pub(crate) fn shuffle(
    typed: &ShuffleArguments,
    registry: &Arc<Registry>,
    interrupt: &Interrupt<'_>,
) -> Result<Shuffling> {
    let opened = plan::open_file(&typed.plan, registry, interrupt)?;
    let epoch = Epoch(typed.epoch);
    // Takes seconds for millions of samples, and cannot be stopped from inside.
    let report = plan::wait_for(move || opened.shuffle_report(epoch), interrupt)?;
    let report = report.with_context(|| format!("in plan {:?}", typed.plan))?;
    let shuffling = Shuffling { plan: typed.plan.clone(), epoch: typed.epoch, report };
    let (report, plots) = (shuffling.to_string(), plots::plots(&shuffling.report));
    Drawing { title: "feedline shuffle", report, plots }.write(typed.drawn.html.as_ref(), typed.drawn.svg.as_ref())?;
    Ok(shuffling)
}
