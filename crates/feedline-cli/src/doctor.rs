//! `feedline doctor`: finds the bottleneck of a job, its cause, and remedies.
//!
//! In: a plan, and the duration of a step. Out: an [`Examination`]: the diagnosis as text and as data, tried remedies with their
//! predictions and measurements, and a page and a trace on request.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use feedline_data::batch::Batch;
use feedline_data::plan::Registry;
use feedline_diagnose::doctor::{
    Choice, Diagnosis, DoctorError, ExaminationSettings, Job, ProgressEvent, Trainer, Tried,
};
use serde::Serialize;

use crate::arguments::DoctorArguments;
use crate::interrupt::{Interrupt, Interrupted};
use crate::progress::Progress;
use crate::{output, plan};

#[cfg(test)]
mod example;
mod formats;
mod page;
mod strip;
mod tables;
mod trace;
mod words;

pub use formats::{FormatCost, formats};
pub use page::html;
pub use trace::trace;
pub use words::words;

/// The results for a plan.
#[derive(Debug, Serialize)]
pub struct Examination {
    plan: PathBuf,
    #[serde(flatten)]
    diagnosis: Diagnosis,
    tried: Vec<Tried>,
    formats: Vec<FormatCost>,
}

impl std::fmt::Display for Examination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&words(&self.diagnosis, &self.tried, &self.formats))
    }
}

/// A simulated accelerator, which only waits. The duration of its step is proportional to the size of the batch.
struct Simulated<'a> {
    step: Duration,
    batch_size: usize,
    batch: Option<Batch>,
    packing: Option<Progress>,
    interrupt: &'a Interrupt<'a>,
}

impl Trainer for Simulated<'_> {
    fn receive(&mut self, batch: Batch) -> Result<(), DoctorError> {
        self.batch = Some(batch);
        Ok(())
    }

    fn step(&mut self) -> Result<(), DoctorError> {
        let samples = self.batch.as_ref().map_or(self.batch_size, |batch| batch.len);
        std::thread::sleep(self.step.mul_f64(samples as f64 / self.batch_size as f64));
        Ok(())
    }

    fn packed(&mut self, samples: u64, of: u64) {
        self.packing.get_or_insert_with(|| Progress::new("samples packed", of)).reach(samples);
        // Removes the bar when packing is complete.
        if samples >= of {
            self.packing = None;
        }
    }

    fn check(&mut self) -> Result<(), DoctorError> {
        self.interrupt.check().map_err(|_| DoctorError::Interrupted)
    }
}

/// Examines a plan.
pub fn doctor(typed: &DoctorArguments, registry: &Arc<Registry>, interrupt: &Interrupt<'_>) -> Result<Examination> {
    let opened = plan::open_file(&typed.plan, registry, interrupt)?;
    let machine = plan::machine();
    let step = Duration::try_from_secs_f64(typed.step_ms / 1e3).context("--step-ms must be 0 or more")?;
    // A source may be smaller than a batch. Then its only batch is the full one.
    let batch_size = opened.settings().batch_size.min(opened.source().len().max(1) as usize);
    let mut trainer = Simulated { step, batch_size, batch: None, packing: None, interrupt };
    let settings = ExaminationSettings { seconds: typed.seconds, has_tables: !typed.quick };
    let mut report = |event: ProgressEvent| output::say(&event.to_string());
    let examined = Diagnosis::examine(&opened, &machine, settings, &mut trainer, &mut report);
    let diagnosis = examined.map_err(as_interrupt).with_context(|| format!("in plan {:?}", typed.plan))?;
    let job = Job { plan: &opened, machine: &machine, seconds: typed.seconds };
    let tried = match typed.r#try.as_deref().map(Choice::from) {
        Some(choice) => diagnosis.try_remedies(&choice, job, &mut trainer, &mut report).map_err(as_interrupt)?,
        None => Vec::new(),
    };
    // Independent of the plan, so it is measured only for the full report.
    let formats = if typed.quick { Vec::new() } else { formats()? };
    if let Some(path) = &typed.html {
        write(path, &html(&diagnosis, &tried, &formats))?;
    }
    if let Some(path) = &typed.trace {
        write(path, &trace(&diagnosis.life))?;
    }
    Ok(Examination { plan: typed.plan.clone(), diagnosis, tried, formats })
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
