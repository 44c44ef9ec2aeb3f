//! Remedies that are tried: what was predicted of each, against what it gives.
//!
//! In: a diagnosis, the job that it is about, and which of its remedies to try. Out: what each reached with the trainer. Only the
//! settings of the job change, and nothing that a trial keeps on disk is left (`trial.rs`).

use feedline_data::failure::chain;
use feedline_data::plan::{ByteSize, Plan};
use feedline_engine::machine::Machine;
use serde::Serialize;

use super::DoctorError;
use super::diagnosis::Diagnosis;
use super::packed::MOST_PACKED;
use super::remedy::{Change, Remedy};
use super::told::ProgressEvent;
use super::trial::{free_bytes, reached};
use super::watch::{Job, Trainer};

/// The part of the joint run that a remedy is tried for.
const TRY: f64 = 0.5;
/// Seconds of a trial at least.
const LEAST_SECONDS: f64 = 2.0;
/// Shards are larger than what is in them.
const OVERHEAD: f64 = 1.1;

/// Which remedies to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The best that can be tried.
    Best,
    /// One after the other.
    All,
    /// One by its name; `_` is read as `-`.
    Named(String),
}

impl From<&str> for Choice {
    fn from(text: &str) -> Self {
        match text {
            "best" => Self::Best,
            "all" => Self::All,
            name => Self::Named(name.to_owned()),
        }
    }
}

/// A remedy that was tried.
#[derive(Clone, Debug, Serialize)]
pub struct Tried {
    /// What was tried, with what was predicted of it.
    #[serde(flatten)]
    pub remedy: Remedy,
    /// What it gave.
    pub measured_samples_per_second: f64,
}

impl Diagnosis {
    /// Tries remedies on the job that was diagnosed, each for `job.seconds`. A remedy that cannot be tried is reported, and the others
    /// are tried all the same.
    pub fn try_remedies(
        &self,
        choice: &Choice,
        job: Job<'_>,
        trainer: &mut dyn Trainer,
        tell: &mut dyn FnMut(ProgressEvent),
    ) -> Result<Vec<Tried>, DoctorError> {
        let remedies = match choice {
            Choice::Best | Choice::All => &self.remedies[..],
            Choice::Named(name) => std::slice::from_ref(self.remedy(name)?),
        };
        let mut found = Vec::new();
        for remedy in remedies {
            let is_unasked = *choice != Choice::Named(Change::Pack.name().to_owned());
            let tried = match remedy.change {
                Change::Pack if is_unasked && self.stored_bytes(job.plan) > MOST_PACKED => Err(DoctorError::PacksAll),
                _ => self.attempt(remedy, job, trainer, tell),
            };
            match tried {
                Ok(tried) => found.push(tried),
                Err(DoctorError::Interrupted) => return Err(DoctorError::Interrupted),
                Err(error) => tell(ProgressEvent::NotTried(remedy.change.clone(), chain(&error))),
            }
            if *choice == Choice::Best && !found.is_empty() {
                break;
            }
        }
        Ok(found)
    }

    /// Tries one remedy by its name.
    pub fn try_remedy(
        &self,
        name: &str,
        job: Job<'_>,
        trainer: &mut dyn Trainer,
        tell: &mut dyn FnMut(ProgressEvent),
    ) -> Result<Tried, DoctorError> {
        self.attempt(self.remedy(name)?, job, trainer, tell)
    }

    fn remedy(&self, name: &str) -> Result<&Remedy, DoctorError> {
        let written = name.replace('_', "-");
        self.remedies.iter().find(|remedy| remedy.change.name() == written).ok_or_else(|| {
            let names: Vec<&str> = self.remedies.iter().map(|remedy| remedy.change.name()).collect();
            DoctorError::NoRemedy { name: name.to_owned(), names: names.join(", ") }
        })
    }

    fn attempt(
        &self,
        remedy: &Remedy,
        job: Job<'_>,
        trainer: &mut dyn Trainer,
        tell: &mut dyn FnMut(ProgressEvent),
    ) -> Result<Tried, DoctorError> {
        let change = &remedy.change;
        if *change == Change::Pack {
            check_room(job.machine, self.stored_bytes(job.plan))?;
        }
        let changed = change.apply(job.plan)?.ok_or(DoctorError::NotOurs)?;
        // What is kept between epochs, or indexed, has to be made first.
        let seconds = if change.warms_up() { job.seconds } else { job.seconds * TRY }.max(LEAST_SECONDS);
        tell(ProgressEvent::Tries(change.clone(), seconds));
        let job = Job { plan: &changed, seconds, ..job };
        let measured_samples_per_second = reached(change, job, self.measured_samples_per_second, trainer)?;
        Ok(Tried { remedy: remedy.clone(), measured_samples_per_second })
    }

    /// Bytes of all samples, about.
    fn stored_bytes(&self, plan: &Plan) -> f64 {
        self.parts.read_bytes * plan.source().len() as f64
    }
}

/// An error where there is no room beside the cache for shards of so many bytes.
fn check_room(machine: &Machine, bytes: f64) -> Result<(), DoctorError> {
    let folder = machine.cache_folder.as_deref().ok_or(DoctorError::NoFolder)?;
    let (free, needed) = (free_bytes(folder), (bytes * OVERHEAD) as u64);
    if needed <= free {
        return Ok(());
    }
    Err(DoctorError::SmallDisk { folder: folder.to_owned(), needs: ByteSize(needed), has: ByteSize(free) })
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
