//! Tries a change and leaves nothing behind.
//!
//! In: a change and the plan with it. Out: samples per second. Files of the trial are in a temporary folder.

use std::path::Path;
use std::sync::Arc;

use feedline_data::plan::Plan;
use feedline_data::source::SubsetSource;
use feedline_engine::machine::Machine;
use rustix::fs::statvfs;
use tempfile::TempDir;

use super::DoctorError;
use super::packed::packed;
use super::parts::varied;
use super::remedy::Change;
use super::watch::{Job, Trainer, watch};

/// The fraction of a trial in which samples are cached or indexed, and the minimum number of batches of these samples.
const WARM_UP_SHARE: f64 = 0.3;
const MIN_WARM_UP_BATCHES: u64 = 4;

/// Samples per second of a job with a change; without it the job reaches `usual`. If samples have to be cached or indexed first,
/// the trial uses as many as there is time for. Shards are made of all samples. The files of the trial are removed.
pub(super) fn reached(
    change: &Change,
    job: Job<'_>,
    usual: f64,
    trainer: &mut dyn Trainer,
) -> Result<f64, DoctorError> {
    let trial_machine = TrialMachine::new(change, job.machine)?;
    // A trial must not write what it learns about costs into the user's cache.
    let machine = Machine { is_trial: true, ..trial_machine.machine.clone() };
    let mut plan = without_log(job.plan)?;
    let is_packed = *change == Change::Pack;
    let shards = is_packed.then(|| own_folder(&machine)?.ok_or(DoctorError::NoFolder)).transpose()?;
    if let Some(shards) = &shards {
        plan = packed(&plan, shards.path(), u64::MAX, trainer)?;
    }
    // As many samples as the job gets through in the warm-up, so that the rest of the trial finds all of them cached.
    let some =
        ((usual * job.seconds * WARM_UP_SHARE) as u64).max(MIN_WARM_UP_BATCHES * plan.settings().batch_size as u64);
    let plan = if change.warms_up() { part_of(&plan, some)? } else { plan };
    Ok(watch(Job { plan: &plan, machine: &machine, ..job }, trainer)?.samples_per_second())
}

/// A plan that leaves no log behind.
pub(super) fn without_log(plan: &Arc<Plan>) -> Result<Arc<Plan>, DoctorError> {
    if plan.config().arrival_log.is_none() {
        return Ok(Arc::clone(plan));
    }
    varied(plan, plan.source(), plan.ops().to_vec(), |_, config| config.arrival_log = None)
}

/// The plan with about `samples` of its samples. A sampler is dropped, because it names samples of the whole source.
fn part_of(plan: &Arc<Plan>, samples: u64) -> Result<Arc<Plan>, DoctorError> {
    if samples >= plan.source().len() {
        return Ok(Arc::clone(plan));
    }
    let source = SubsetSource::some(plan.source(), samples)?;
    varied(plan, &source, plan.ops().to_vec(), |settings, _| settings.sampler = None)
}

/// A machine for a trial. Files that the change would leave in the cache go into a temporary folder, which is removed on drop.
pub(super) struct TrialMachine {
    pub machine: Machine,
    _folder: Option<TempDir>,
}

impl TrialMachine {
    pub(super) fn new(change: &Change, machine: &Machine) -> Result<Self, DoctorError> {
        let writes_files = matches!(change, Change::SeekIndex | Change::Cache { disk: Some(_), .. });
        let folder = if writes_files { own_folder(machine)? } else { None };
        let cache_folder =
            folder.as_ref().map_or(machine.cache_folder.clone(), |own| Some(own.path().to_owned().into()));
        Ok(Self { machine: Machine { cache_folder, ..machine.clone() }, _folder: folder })
    }
}

/// A temporary folder on the disk of the cache, removed on drop. `None` without a cache folder.
pub(super) fn own_folder(machine: &Machine) -> Result<Option<TempDir>, DoctorError> {
    let folder = machine.cache_folder.as_deref().and_then(existing);
    let own = folder.map(|folder| tempfile::Builder::new().prefix("feedline-doctor-").tempdir_in(folder));
    own.transpose().map_err(DoctorError::Folder)
}

/// Free bytes on the disk of a folder. The folder need not exist yet.
pub(super) fn free_bytes(folder: &Path) -> u64 {
    let disk = existing(folder).and_then(|folder| statvfs(folder).ok());
    // `f_bavail` leaves out the blocks that are reserved for root.
    disk.map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// The folder itself, or its nearest parent that exists.
fn existing(folder: &Path) -> Option<&Path> {
    folder.ancestors().find(|folder| folder.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_data::plan::CacheForm;

    #[test]
    fn what_a_trial_keeps_lies_beside_the_cache_and_is_gone_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let cache_folder = Some(folder.path().join("cache").into());
        let machine = Machine { cache_folder: cache_folder.clone(), ..Machine::default() };
        let disk = Change::Cache { form: CacheForm::Encoded, ram: None, disk: Some(1 << 20) };
        let trial_machine = TrialMachine::new(&disk, &machine).unwrap();
        let own = trial_machine.machine.cache_folder.clone().unwrap();
        assert!(own.starts_with(folder.path()) && own.is_dir() && Some(&own) != cache_folder.as_ref());
        drop(trial_machine);
        assert!(!own.exists());
        assert_eq!(
            TrialMachine::new(&Change::Planned, &machine).unwrap().machine.cache_folder,
            cache_folder,
            "keeps nothing"
        );
    }

    #[test]
    fn a_folder_that_is_not_there_has_the_room_of_the_one_above() {
        let folder = tempfile::tempdir().unwrap();
        assert!(free_bytes(&folder.path().join("a/b")) > 0);
    }
}
