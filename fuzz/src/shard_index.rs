//! The reader of shard indexes. Any bytes as the index of a shard, also with correct checksums, name samples inside the shard, or
//! are replaced by a new index, or are an error.

use std::fs;
use std::sync::{Arc, LazyLock};

use feedline_data::pack::{Content, Damaged, Options, Watch, pack};
use feedline_data::plan::ByteSize;
use feedline_data::source::{FolderOptions, FolderSource, TarSource};
use feedline_data::store::{DiskStore, Store};
use feedline_data::testing::write_pictures;

use crate::memory::MemoryStore;
use crate::shard::{SHARD, read_all};

/// A shard as `pack` writes it, its index, and its modification time.
struct Packed {
    shard: Vec<u8>,
    index: Vec<u8>,
    modified_nanoseconds: Option<i64>,
}

static PACKED: LazyLock<Packed> = LazyLock::new(|| packed().expect("a few pictures can be packed"));

struct NeverStop;

impl Watch for NeverStop {
    fn reached(&mut self, _samples: u64) {}

    fn wants_to_stop(&mut self) -> bool {
        false
    }
}

fn packed() -> Result<Packed, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let (pictures, shards) = (folder.path().join("pictures"), folder.path().join("shards"));
    write_pictures(&pictures, 4, 2)?;
    let source =
        FolderSource::open(&pictures.to_string_lossy(), Arc::new(DiskStore::new(&pictures)), FolderOptions::default())?;
    let options =
        Options { shard_size: ByteSize(1 << 20), content: Content::AsIs, max_side: None, damaged: Damaged::Keep };
    pack(&source, &shards, &options, 1, &mut NeverStop)?;
    let name = "shard-000000.tar";
    let modified_nanoseconds = DiskStore::new(&shards).open(name)?.modified_nanoseconds();
    let (shard, index) = (fs::read(shards.join(name))?, fs::read(shards.join(format!("{name}.index")))?);
    Ok(Packed { shard, index, modified_nanoseconds })
}

/// Reads the shard with these bytes as its index: as they are, and with corrected checksums.
pub fn run(data: &[u8]) {
    let Packed { shard, modified_nanoseconds, .. } = &*PACKED;
    let store = MemoryStore::default().with(SHARD, shard.clone(), *modified_nanoseconds);
    for index in [data.to_vec(), TarSource::forged_index(data)] {
        read_all(store.clone().with(&format!("{SHARD}.index"), index, None));
    }
}

/// The index of the shard.
pub fn seeds() -> Vec<Vec<u8>> {
    vec![PACKED.index.clone()]
}
