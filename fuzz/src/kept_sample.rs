//! Cached samples. Any record with a correct checksum is used or created again, and batches are delivered.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use feedline_data::plan::{CacheForm, Plan};
use feedline_data::testing::{open, write_pictures, write_volumes};
use feedline_engine::cache::Shelf;
use feedline_engine::loader::Loader;
use feedline_engine::machine::Machine;
use feedline_engine::testing::collect;
use tempfile::TempDir;

use crate::running;

/// A plan with a disk cache, and the cached record of its first sample.
struct Case {
    plan: Arc<Plan>,
    below: PathBuf,
    stamp: u64,
    record: Vec<u8>,
}

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));
static CASES: LazyLock<Mutex<Vec<Case>>> = LazyLock::new(|| Mutex::new(cases()));

fn cache() -> PathBuf {
    FOLDER.path().join("cache")
}

fn machine() -> Machine {
    Machine { cache_folder: Some(cache().into()), ..running::machine() }
}

fn cases() -> Vec<Case> {
    let (pictures, volumes) = (FOLDER.path().join("pictures"), FOLDER.path().join("volumes"));
    write_pictures(&pictures, 2, 1).expect("pictures");
    write_volumes(&volumes, 2, [4, 5, 6]).expect("volumes");
    let folder = |form: &str| {
        format!(
            "batch_size = 1\n[source]\nkind = \"folder\"\nroot = {pictures:?}\n[[ops]]\nop = \"DecodeImage\"\n[[ops]]\nop = \"Resize\"\n\
             size = [20, 20]\n[[ops]]\nop = \"RandomCrop\"\nsize = 8\n[run]\ncache = {{ disk = \"1MB\", form = {form:?} }}\n"
        )
    };
    let volumes = format!(
        "batch_size = 1\n[source]\nkind = \"volumes\"\nroot = {volumes:?}\n[[ops]]\nop = \"RandomBalancedCrop\"\nsize = [2, 2, 2]\n\
         [run]\ncache = {{ disk = \"1MB\", form = \"encoded\" }}\n"
    );
    let texts = [
        (folder("encoded"), CacheForm::Encoded),
        (folder("decoded"), CacheForm::Decoded),
        (folder("resized"), CacheForm::Resized),
        (volumes, CacheForm::Encoded),
    ];
    texts.into_iter().map(|(text, form)| case(&text, form)).collect()
}

fn case(text: &str, form: CacheForm) -> Case {
    let plan = open(text).expect("a valid plan");
    collect(&Loader::new(Arc::clone(&plan), &machine())).expect("samples that can be read");
    let below = Path::new("samples").join(plan.prefix_fingerprint(plan.cut_of(form)).to_string());
    let (table, records) =
        ["table", "records"].map(|name| fs::read(cache().join(&below).join(name)).expect("a file")).into();
    // The first entry of the table has the offset (bytes 16..24) and the length (24..28) of its record. The record starts with its
    // checksum and number (16 bytes), then the stamp, and its content is from byte 40.
    let number = |bytes: &[u8], at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("eight bytes"));
    let start = number(&table, 16) as usize;
    let len = u32::from_le_bytes(*table[24..].first_chunk().expect("four bytes")) as usize;
    Case { plan, below, stamp: number(&records, start + 16), record: records[start + 40..start + len].to_vec() }
}

/// Replaces the record of the first sample by these bytes. The first byte selects the plan.
pub fn run(data: &[u8]) {
    let Some((number, record)) = data.split_first() else { return };
    let cases = CASES.lock().unwrap_or_else(PoisonError::into_inner);
    let Case { plan, below, stamp, .. } = &cases[usize::from(*number) % cases.len()];
    // The shelf only appends records, so its folder is removed first.
    fs::remove_dir_all(cache().join(below)).expect("a folder of the cache");
    assert!(Shelf::new(cache().into(), below.clone(), None).put(0, *stamp, record));
    running::take_batches(&Loader::new(Arc::clone(plan), &machine()));
}

/// The records that the cache wrote.
pub fn seeds() -> Vec<Vec<u8>> {
    let cases = CASES.lock().unwrap_or_else(PoisonError::into_inner);
    cases.iter().enumerate().map(|(number, case)| [&[number as u8], &*case.record].concat()).collect()
}
