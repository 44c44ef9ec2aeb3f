//! `feedline doctor`: what bounds a job, why, and what would help.
//!
//! In: a plan and how long a step takes. Out: an [`Examination`]: the diagnosis, in words and as data; a page and a trace where asked
//! for; remedies that were tried, predicted against measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use feedline_core::batch::Batch;
use feedline_core::doctor::{Course, Diagnosis, DoctorError, Remedy, Told, Trainer, reached};
use feedline_core::{Machine, Plan, Registry};
use serde::Serialize;

use crate::arguments::DoctorArguments;
use crate::interrupt::{Interrupt, Interrupted};
use crate::output;
use crate::plan;

mod formats;
mod page;
mod trace;
mod words;

pub use formats::{FormatCost, formats};
pub use page::html;
pub use trace::trace;
pub use words::words;

/// The part of the joint run that a remedy is tried for.
const TRY: f64 = 0.5;

/// What was found out about a plan.
#[derive(Debug, Serialize)]
pub struct Examination {
    plan: PathBuf,
    #[serde(flatten)]
    diagnosis: Diagnosis,
    tried: Vec<Tried>,
    formats: Vec<FormatCost>,
}

/// A remedy that was tried.
#[derive(Clone, Debug, Serialize)]
pub struct Tried {
    /// What was tried.
    #[serde(flatten)]
    pub remedy: Remedy,
    /// What it gave.
    pub measured_samples_per_second: f64,
}

impl std::fmt::Display for Examination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&words(&self.diagnosis, &self.tried, &self.formats))
    }
}

/// An accelerator that only takes its time.
struct Simulated<'a> {
    step: Duration,
    batch: Option<Batch>,
    interrupt: &'a Interrupt<'a>,
}

impl Trainer for Simulated<'_> {
    fn receive(&mut self, batch: Batch) -> Result<(), DoctorError> {
        self.batch = Some(batch);
        Ok(())
    }

    fn step(&mut self) -> Result<(), DoctorError> {
        std::thread::sleep(self.step);
        Ok(())
    }

    fn check(&mut self) -> Result<(), DoctorError> {
        self.interrupt.check().map_err(|_| DoctorError::Interrupted)
    }
}

/// Examines a plan.
pub fn doctor(typed: &DoctorArguments, registry: &Arc<Registry>, interrupt: &Interrupt<'_>) -> Result<Examination> {
    let opened = plan::open(plan::read(&typed.plan)?, registry, interrupt);
    let opened = opened.with_context(|| format!("in plan {:?}", typed.plan))?;
    let machine = plan::machine();
    let step = Duration::try_from_secs_f64(typed.step_ms / 1e3).context("--step-ms is a time from 0 on")?;
    let mut trainer = Simulated { step, batch: None, interrupt };
    let course = Course { seconds: typed.seconds, has_tables: !typed.quick };
    let examined = Diagnosis::examine(&opened, &machine, course, &mut trainer, &mut told);
    let diagnosis = examined.map_err(as_interrupt).with_context(|| format!("in plan {:?}", typed.plan))?;
    let tried = match &typed.r#try {
        Some(name) => try_out(name, &diagnosis, &opened, &machine, typed.seconds, &mut trainer)?,
        None => Vec::new(),
    };
    let formats = if typed.quick { Vec::new() } else { formats()? };
    if let Some(path) = &typed.html {
        write(path, &html(&diagnosis, &tried, &formats))?;
    }
    if let Some(path) = &typed.trace {
        write(path, &trace(&diagnosis.life))?;
    }
    Ok(Examination { plan: typed.plan.clone(), diagnosis, tried, formats })
}

/// Says on stderr how far it is.
pub fn told(told: Told) {
    output::say(&match told {
        Told::Measures(what, seconds) => format!("measuring {what} (about {seconds:.0} s)"),
        Told::Predicted(rate) => format!("predicted: {rate:.1} samples/s"),
    });
}

fn as_interrupt(error: DoctorError) -> anyhow::Error {
    match error {
        DoctorError::Interrupted => Interrupted.into(),
        other => other.into(),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {path:?}"))
}

/// Tries one remedy by its name, the best of them, or all.
fn try_out(
    name: &str,
    diagnosis: &Diagnosis,
    plan: &Arc<Plan>,
    machine: &Machine,
    seconds: f64,
    trainer: &mut dyn Trainer,
) -> Result<Vec<Tried>> {
    let mut found = Vec::new();
    for remedy in &diagnosis.remedies {
        if !(name == "best" || name == "all" || name == remedy.change.name()) {
            continue;
        }
        let Some(changed) = remedy.change.apply(plan)? else { continue };
        output::say(&format!("trying {} (about {:.0} s)", remedy.change, seconds));
        // What is kept between epochs has to be kept first.
        let time = if remedy.change.name() == "cache" { seconds } else { seconds * TRY };
        let measured = reached(&changed, machine, time.max(2.0), trainer).map_err(as_interrupt)?;
        found.push(Tried { remedy: remedy.clone(), measured_samples_per_second: measured });
        if name == "best" {
            break;
        }
    }
    if found.is_empty() && name != "best" && name != "all" {
        let names: Vec<&str> = diagnosis.remedies.iter().map(|remedy| remedy.change.name()).collect();
        bail!("there is nothing to try by the name of {name:?}; remedies here are: {}", names.join(", "));
    }
    Ok(found)
}
