//! `feedline doctor`: what bounds a job, why, and what would help.
//!
//! In: a plan and how long a step takes. Out: an [`Examination`]: the diagnosis, in words and as data; a page and a trace where asked
//! for; remedies that were tried, predicted against measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use feedline_data::batch::Batch;
use feedline_data::plan::{ByteSize, Plan, Registry};
use feedline_diagnose::doctor::{
    Change, Course, Diagnosis, DoctorError, MOST_PACKED, Remedy, Trainer, free_bytes, reached,
};
use feedline_engine::machine::Machine;
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
mod trace;
mod words;

pub use formats::{FormatCost, formats};
pub use page::html;
pub use trace::trace;
pub use words::words;

/// The part of the joint run that a remedy is tried for.
const TRY: f64 = 0.5;
/// Shards are larger than what is in them.
const OVERHEAD: f64 = 1.1;

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

/// An accelerator that only takes its time: as long as its step for a whole batch, and so much longer for a larger one.
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
    let document = plan::read(&typed.plan)?;
    let opened = plan::open(document.clone(), registry, interrupt);
    let opened = opened.with_context(|| format!("in plan {:?}", typed.plan))?;
    let machine = plan::machine();
    let step = Duration::try_from_secs_f64(typed.step_ms / 1e3).context("--step-ms is a time from 0 on")?;
    let batch_size = opened.settings().batch_size.min(opened.source().len().max(1) as usize);
    let mut trainer = Simulated { step, batch_size, batch: None, packing: None, interrupt };
    let course = Course { seconds: typed.seconds, has_tables: !typed.quick };
    let examined =
        Diagnosis::examine(&opened, &machine, course, &mut trainer, &mut |now| output::say(&now.to_string()));
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

fn as_interrupt(error: DoctorError) -> anyhow::Error {
    match error {
        DoctorError::Interrupted => Interrupted.into(),
        other => other.into(),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {path:?}"))
}

/// An error where there is no room beside the cache for shards of so many bytes.
fn check_room(machine: &Machine, bytes: f64) -> Result<()> {
    let folder = machine.cache_folder.as_deref().context("there is no cache folder; set FEEDLINE_CACHE")?;
    let (free, needed) = (free_bytes(folder), (bytes * OVERHEAD) as u64);
    let [has, needs] = [free, needed].map(ByteSize);
    ensure!(
        needed <= free,
        "shards take {needs}, and {folder:?} has room for {has}; set FEEDLINE_CACHE to a larger disk"
    );
    Ok(())
}

/// Tries one remedy by its name, the best of them, or all. One that fails is told, and takes nothing from the diagnosis.
fn try_out(
    name: &str,
    diagnosis: &Diagnosis,
    plan: &Arc<Plan>,
    machine: &Machine,
    seconds: f64,
    trainer: &mut dyn Trainer,
) -> Result<Vec<Tried>> {
    let name = name.replace('_', "-");
    let is_asked = |remedy: &&Remedy| name == "best" || name == "all" || name == remedy.change.name();
    let asked: Vec<&Remedy> = diagnosis.remedies.iter().filter(is_asked).collect();
    if asked.is_empty() && name != "best" && name != "all" {
        let names: Vec<&str> = diagnosis.remedies.iter().map(|remedy| remedy.change.name()).collect();
        bail!("there is nothing to try by the name of {name:?}; remedies here are: {}", names.join(", "));
    }
    let mut found = Vec::new();
    for remedy in asked {
        let bytes = diagnosis.parts.read_bytes * plan.source().len() as f64;
        let changed = match &remedy.change {
            Change::Pack if name != "pack" && bytes > MOST_PACKED => {
                output::say("not tried: ask for --try pack, which packs all samples into a folder beside the cache");
                continue;
            }
            Change::Pack => check_room(machine, bytes).map(|()| Some(Arc::clone(plan))),
            change => change.apply(plan).map_err(Into::into),
        };
        let measured = changed.and_then(|changed| {
            let Some(changed) = changed else { return Ok(None) };
            output::say(&format!("trying {} (about {seconds:.0} s)", remedy.change));
            // What is kept between epochs, or indexed, has to be made first.
            let time = if remedy.change.warms_up() { seconds } else { seconds * TRY };
            let usual = diagnosis.measured_samples_per_second;
            let measured = reached((&remedy.change, &changed), usual, machine, time.max(2.0), trainer);
            measured.map(Some).map_err(as_interrupt)
        });
        match measured {
            Ok(Some(measured)) => {
                found.push(Tried { remedy: remedy.clone(), measured_samples_per_second: measured });
                if name == "best" {
                    break;
                }
            }
            Ok(None) => output::say(&format!("not tried, because it is not for the doctor to do: {}", remedy.change)),
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => output::say(&format!("{} cannot be tried: {error:#}", remedy.change)),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_room_for_shards_that_is_said_with_the_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine { cache_folder: Some(folder.path().join("cache").into()), ..Machine::default() };
        check_room(&machine, 1e3).unwrap();
        let refused = check_room(&machine, 1e18).unwrap_err().to_string();
        assert!(refused.contains("1100000000.0 GB") && refused.contains("FEEDLINE_CACHE"), "{refused}");
        check_room(&Machine { cache_folder: None, ..machine }, 1e3).unwrap_err();
    }
}
