//! The samples of a plan as shards, to see what reading in sequence would give.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use feedline_core::doctor::free_bytes;
use feedline_core::pack::{self, Content, Damaged, Options};
use feedline_core::plan::{ByteSize, ReservoirConfig, ReservoirSize, Shuffle};
use feedline_core::source::SubsetSource;
use feedline_core::{Document, Plan, Registry};

use crate::environment;
use crate::interrupt::Interrupt;
use crate::pack::Watcher;
use crate::plan;
use crate::progress::Progress;

/// A simulated disk keeps its speed in the address.
const SLOW_DISK: &str = "slow-disk://";
/// The part of an epoch that the reservoir holds.
const RESERVOIR: f64 = 0.1;
const SHARD_BYTES: u64 = 256 << 20;
/// Shards are larger than what is in them.
const OVERHEAD: f64 = 1.1;

/// Says whether samples of a plan could be packed: files of their own, on a disk of this machine, all of which are asked for.
pub fn can_pack(plan: &Plan) -> bool {
    let source = plan.source();
    let first = (!source.is_empty()).then(|| source.id_at(0)).and_then(|id| source.address(id));
    let is_file = first.is_some_and(|(_, range)| range.is_none());
    let is_whole = plan.settings().sampler.is_none();
    is_whole && source.blocks().is_none() && !source.is_remote() && source.peer().is_none() && is_file
}

/// An error where a folder has no room for shards of so many bytes.
pub fn check_room(folder: &Path, bytes: f64) -> Result<()> {
    let (free, needed) = (free_bytes(folder), (bytes * OVERHEAD) as u64);
    let [has, needs] = [free, needed].map(ByteSize);
    ensure!(
        needed <= free,
        "shards take {needs} and {folder:?} has room for {has}; set TMPDIR to a folder on a larger disk"
    );
    Ok(())
}

/// The plan over shards in `folder`, into which up to `most_samples` of its samples are packed, read in sequence.
pub fn packed(
    plan: &Plan,
    document: &Document,
    (folder, most_samples): (&Path, u64),
    registry: &Arc<Registry>,
    interrupt: &Interrupt<'_>,
) -> Result<Arc<Plan>> {
    let source = SubsetSource::some(plan.source(), most_samples)?;
    let options =
        Options { shard_size: ByteSize(SHARD_BYTES), content: Content::AsIs, max_side: None, damaged: Damaged::Keep };
    let mut watch = Watcher { progress: Progress::new("samples packed", source.len()), interrupt };
    pack::pack(&*source, folder, &options, environment::cores(), &mut watch)?;
    let root = document.source.get("root").and_then(toml::Value::as_str).unwrap_or_default();
    let mut table = toml::Table::new();
    table.insert("kind".to_owned(), "tar".into());
    table.insert("shards".to_owned(), beside(root, folder)?.into());
    let mut changed = Document { source: table, ..document.clone() };
    let size = Some(ReservoirSize::Share(RESERVOIR));
    changed.settings.shuffle = Shuffle::Reservoir(ReservoirConfig { size, ..ReservoirConfig::default() });
    plan::open(changed, registry, interrupt)
}

/// The shards of a folder, on the disk that `root` is on.
fn beside(root: &str, folder: &Path) -> Result<String> {
    let folder = folder.to_str().context("the temporary folder has a name that is not UTF-8")?;
    let disk = root.strip_prefix(SLOW_DISK).and_then(|rest| rest.split_once('/'));
    Ok(disk.map_or_else(|| format!("{folder}/*.tar"), |(speed, _)| format!("{SLOW_DISK}{speed}{folder}/*.tar")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_room_that_is_said_with_the_numbers() {
        let folder = std::env::temp_dir();
        check_room(&folder, 1e3).unwrap();
        let refused = check_room(&folder, 1e18).unwrap_err().to_string();
        assert!(refused.contains("TMPDIR") && refused.contains("has room for"), "{refused}");
    }

    #[test]
    fn shards_lie_on_the_disk_of_the_files() {
        let folder = Path::new("/tmp/x");
        assert_eq!(beside("/data/train", folder).unwrap(), "/tmp/x/*.tar");
        let slow = beside("slow-disk://seek_ms=8.0,mb_per_second=150.0/data/train", folder).unwrap();
        assert_eq!(slow, "slow-disk://seek_ms=8.0,mb_per_second=150.0/tmp/x/*.tar");
    }
}
