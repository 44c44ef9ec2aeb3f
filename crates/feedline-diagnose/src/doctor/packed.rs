//! Packs samples of a plan into shards, to measure sequential reads.
//!
//! In: a plan over files. Out: the same plan over shards of some or all of its samples, in a temporary folder.

use std::path::Path;
use std::sync::Arc;

use feedline_data::pack;
use feedline_data::pack::{Content, Damaged, Options, PackError, Watch};
use feedline_data::plan::{ByteSize, Plan, Registry, ReservoirConfig, ReservoirSize, Shuffle, Workers};
use feedline_data::source::{Opener, SubsetSource};
use feedline_data::store::escaped_path;
use feedline_order::Ordinal;
use tempfile::TempDir;

use super::DoctorError;
use super::alternative::Alternative;
use super::parts::{Parts, varied};
use super::remedy::Change;
use super::trial::{free_bytes, own_folder};
use super::verdict::Bound;
use super::watch::{Job, Trainer};

/// A simulated disk has its speed in the address.
const SLOW_DISK: &str = "slow-disk://";
/// The fraction of an epoch that the reservoir holds.
const RESERVOIR_SHARE: f64 = 0.1;
const SHARD_BYTES: u64 = 256 << 20;
/// Least number of samples to pack.
const MIN_PACKED: f64 = 256.0;
/// Upper limit of bytes to pack by default.
pub(super) const MAX_PACKED: f64 = 2e9;
const NOTE: &str = "needs the space of the data again; read in sequence through a reservoir of a tenth of the epoch. Measured while the shards are in \
                    the file cache, so a disk may be slower";

/// Some samples as shards. Removed when dropped.
pub(super) struct PackedSome {
    pub alternative: Alternative,
    _folder: TempDir,
}

impl PackedSome {
    /// Packs as many samples as can be read in some seconds, if reading is the bottleneck and samples can be packed.
    pub(super) fn offer(
        job: Job<'_>,
        parts: &Parts,
        bound: Bound,
        trainer: &mut dyn Trainer,
    ) -> Result<Option<Self>, DoctorError> {
        let Job { plan, machine, seconds } = job;
        if bound != Bound::Read || !can_pack(plan) {
            return Ok(None);
        }
        let folder = own_folder(machine)?.ok_or(DoctorError::NoFolder)?;
        // At most half of the free space, in samples.
        let room = MAX_PACKED.min(free_bytes(folder.path()) as f64 / 2.0) / parts.read_bytes.max(1.0);
        // As many samples as are read during the measurement, so that it does not read the same ones twice.
        let some = (parts.read_samples_per_second.unwrap_or_default() * seconds).max(MIN_PACKED);
        if room < MIN_PACKED.min(plan.source().len() as f64) {
            return Err(DoctorError::NoRoom);
        }
        let plan = packed(plan, folder.path(), some.min(room) as u64, trainer)?;
        let alternative = Alternative { change: Change::Pack, plan, note: NOTE.to_owned() };
        Ok(Some(Self { alternative, _folder: folder }))
    }
}

/// Whether the samples of a plan could be packed: single files on a local disk, all of which the plan uses.
fn can_pack(plan: &Plan) -> bool {
    let source = plan.source();
    let first = (!source.is_empty()).then(|| source.id_at(Ordinal(0))).and_then(|id| source.address(id));
    let is_file = first.is_some_and(|(_, range)| range.is_none());
    // A sampler names samples by their index, and shards number them anew.
    let is_whole = plan.settings().sampler.is_none();
    is_whole && source.blocks().is_none() && !source.is_remote() && source.peer().is_none() && is_file
}

/// The plan over shards in `folder`, with up to `most_samples` of its samples, read in sequence.
pub(super) fn packed(
    plan: &Plan,
    folder: &Path,
    most_samples: u64,
    trainer: &mut dyn Trainer,
) -> Result<Arc<Plan>, DoctorError> {
    let source = SubsetSource::some(plan.source(), most_samples)?;
    let options =
        Options { shard_size: ByteSize(SHARD_BYTES), content: Content::AsIs, max_side: None, damaged: Damaged::Keep };
    let mut watch = Watcher { samples: source.len(), trainer };
    pack::pack(&*source, folder, &options, Workers::Auto.count(), &mut watch).map_err(|error| match error {
        PackError::Cancelled => DoctorError::Interrupted,
        other => DoctorError::Pack(other),
    })?;
    let spec = plan.source().spec().unwrap_or_default();
    let root = spec.get("root").and_then(toml::Value::as_str).unwrap_or_default();
    let mut table = toml::Table::new();
    table.insert("kind".to_owned(), "tar".into());
    table.insert("shards".to_owned(), beside(root, &escaped_path(folder)).into());
    let shards = Registry::core().open_source(table)?;
    let size = Some(ReservoirSize::Share(RESERVOIR_SHARE));
    varied(plan, &shards, plan.ops().to_vec(), |settings, _| {
        settings.shuffle = Shuffle::Reservoir(ReservoirConfig { size, ..ReservoirConfig::default() });
    })
}

/// The shards of a folder, on the disk of `root`.
fn beside(root: &str, folder: &str) -> String {
    // The shards must be read at the speed of the same simulated disk, otherwise the comparison is unfair.
    let disk = root.strip_prefix(SLOW_DISK).and_then(|rest| rest.split_once('/'));
    disk.map_or_else(|| format!("{folder}/*.tar"), |(speed, _)| format!("{SLOW_DISK}{speed}{folder}/*.tar"))
}

/// Reports the progress of packing to a trainer.
struct Watcher<'a> {
    samples: u64,
    trainer: &'a mut dyn Trainer,
}

impl Watch for Watcher<'_> {
    fn reached(&mut self, samples: u64) {
        self.trainer.packed(samples, self.samples);
    }

    fn wants_to_stop(&mut self) -> bool {
        self.trainer.check().is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_lie_on_the_disk_of_the_files() {
        assert_eq!(beside("/data/train", "/tmp/x"), "/tmp/x/*.tar");
        let slow = beside("slow-disk://seek_ms=8.0,mb_per_second=150.0/data/train", "/tmp/x");
        assert_eq!(slow, "slow-disk://seek_ms=8.0,mb_per_second=150.0/tmp/x/*.tar");
    }
}
