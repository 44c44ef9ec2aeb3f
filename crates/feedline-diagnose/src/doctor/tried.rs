//! Tries remedies, and compares the prediction of each with the measured speed.
//!
//! In: a diagnosis, its job, and the remedies to try. Out: the speed of each with the trainer. A trial only changes settings of the
//! job, and removes its files (`trial.rs`).

use feedline_data::failure::chain;
use feedline_data::plan::{ByteSize, Plan};
use feedline_engine::machine::Machine;
use serde::Serialize;

use super::DoctorError;
use super::diagnosis::Diagnosis;
use super::packed::MAX_PACKED;
use super::progress::ProgressEvent;
use super::remedy::{Change, Remedy};
use super::trial::{free_bytes, reached};
use super::watch::{Job, Trainer};

/// Duration of a trial as a fraction of `job.seconds`.
const TRIAL_SHARE: f64 = 0.5;
/// Minimum duration of a trial in seconds.
const MIN_SECONDS: f64 = 2.0;
/// Shards are larger than their content: tar headers and padding.
const OVERHEAD: f64 = 1.1;

/// Which remedies to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The best one that can be tried.
    Best,
    /// All, one after the other.
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
    /// The remedy with its prediction.
    #[serde(flatten)]
    pub remedy: Remedy,
    /// The measured speed with it.
    pub measured_samples_per_second: f64,
}

impl Diagnosis {
    /// Tries remedies on the diagnosed job, each for up to `job.seconds`. A remedy that cannot be tried is reported, and the others
    /// are still tried.
    pub fn try_remedies(
        &self,
        choice: &Choice,
        job: Job<'_>,
        trainer: &mut dyn Trainer,
        report: &mut dyn FnMut(ProgressEvent),
    ) -> Result<Vec<Tried>, DoctorError> {
        let remedies = match choice {
            Choice::Best | Choice::All => &self.remedies[..],
            Choice::Named(name) => std::slice::from_ref(self.remedy(name)?),
        };
        let mut found = Vec::new();
        for remedy in remedies {
            let is_implicit = *choice != Choice::Named(Change::Pack.name().to_owned());
            let tried = match remedy.change {
                // Packing copies the whole data set. More than 2 GB are only copied if the user names this remedy.
                Change::Pack if is_implicit && self.stored_bytes(job.plan) > MAX_PACKED => Err(DoctorError::PacksAll),
                _ => self.attempt(remedy, job, trainer, report),
            };
            match tried {
                Ok(tried) => found.push(tried),
                Err(DoctorError::Interrupted) => return Err(DoctorError::Interrupted),
                Err(error) => report(ProgressEvent::NotTried(remedy.change.clone(), chain(&error))),
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
        report: &mut dyn FnMut(ProgressEvent),
    ) -> Result<Tried, DoctorError> {
        self.attempt(self.remedy(name)?, job, trainer, report)
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
        report: &mut dyn FnMut(ProgressEvent),
    ) -> Result<Tried, DoctorError> {
        let change = &remedy.change;
        if *change == Change::Pack {
            check_room(job.machine, self.stored_bytes(job.plan))?;
        }
        let changed = change.apply(job.plan)?.ok_or(DoctorError::NotOurs)?;
        // A trial that must first fill a cache or build indexes needs more time.
        let seconds = if change.warms_up() { job.seconds } else { job.seconds * TRIAL_SHARE }.max(MIN_SECONDS);
        report(ProgressEvent::Tries(change.clone(), seconds));
        let job = Job { plan: &changed, seconds, ..job };
        let measured_samples_per_second = reached(change, job, self.measured_samples_per_second, trainer)?;
        Ok(Tried { remedy: remedy.clone(), measured_samples_per_second })
    }

    /// Approximate bytes of all samples.
    fn stored_bytes(&self, plan: &Plan) -> f64 {
        self.parts.read_bytes * plan.source().len() as f64
    }
}

/// Fails if the disk of the cache has no room for shards of `bytes`.
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
