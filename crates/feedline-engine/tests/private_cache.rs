//! The cache folder through the whole engine: damaged, of another user, not writable, or full of links and pipes.
#![allow(
    clippy::unwrap_used,
    clippy::unnecessary_debug_formatting,
    reason = "a test may panic; TOML quotes as Debug does"
)]

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline_data::batch::FieldData;
use feedline_data::plan::Plan;
use feedline_data::testing::{open, write_pictures};
use feedline_engine::loader::Loader;
use feedline_engine::machine::Machine;
use feedline_engine::testing::collect;
use rustix::fs::{CWD, FileType, Mode, mknodat};

const PICTURES: u64 = 8;

/// Pictures and a cache folder.
struct Case(tempfile::TempDir);

impl Case {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_pictures(&folder.path().join("pictures"), PICTURES, 2).unwrap();
        Self(folder)
    }

    fn cache(&self) -> PathBuf {
        self.0.path().join("cache")
    }

    /// Crops, for which seek indexes are made.
    fn plan(&self, settings: &str, run: &str) -> Arc<Plan> {
        let root = self.0.path().join("pictures");
        open(&format!(
            "batch_size = 4\n{settings}\n[source]\nkind = \"folder\"\nroot = {root:?}\n[[ops]]\nop = \"DecodeImage\"\n\
             [[ops]]\nop = \"RandomResizedCrop\"\nsize = 16\n[run]\nmemory_budget = \"64MB\"\n{run}\n"
        ))
        .unwrap()
    }

    fn loader(&self) -> Loader {
        let plan = self.plan("", "[run.cache]\ndisk = \"64MB\"\nform = \"decoded\"");
        Loader::new(plan, &Machine { cache_folder: Some(self.cache().into()), ..Machine::default() })
    }

    /// The pixels of two epochs. A batch that does not come in a minute fails the test.
    fn pixels(&self) -> Vec<Vec<u8>> {
        pixels(&self.loader())
    }

    /// All that lies below the cache folder.
    fn kept(&self) -> Vec<PathBuf> {
        fn walk(path: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(path).into_iter().flatten().flatten() {
                found.push(entry.path());
                walk(&entry.path(), found);
            }
        }
        let mut found = Vec::new();
        walk(&self.cache(), &mut found);
        found
    }

    fn kept_files(&self) -> Vec<PathBuf> {
        self.kept().into_iter().filter(|path| path.is_file()).collect()
    }
}

fn pixels(loader: &Loader) -> Vec<Vec<u8>> {
    let batches = (0..2).flat_map(|_| collect(loader).unwrap());
    batches.map(|batch| batch.field("image").map(FieldData::bytes).unwrap().to_vec()).collect()
}

#[test]
fn nobody_else_can_read_what_is_kept() {
    let case = Case::new();
    case.pixels();
    let kept = case.kept();
    let is_there = |part: &str| kept.iter().any(|path| path.to_string_lossy().contains(part));
    assert!(["samples", "seek", "costs", "records", "table"].into_iter().filter(|part| is_there(part)).count() >= 4);
    for path in kept.iter().chain([&case.cache()]) {
        let mode = fs::symlink_metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{path:?} has mode {mode:o}");
    }
}

#[test]
fn a_damaged_table_neither_takes_memory_nor_changes_a_sample() {
    let case = Case::new();
    let expected = case.pixels();
    let tables: Vec<PathBuf> = case.kept_files().into_iter().filter(|path| path.ends_with("table")).collect();
    assert!(!tables.is_empty());
    for path in &tables {
        let mut table = fs::read(path).unwrap();
        for entry in table[16..].chunks_exact_mut(16) {
            entry[8..12].copy_from_slice(&(1_u32 << 30).to_le_bytes());
        }
        fs::write(path, table).unwrap();
        // Holes, so that the claimed lengths lie inside the file.
        let records = File::options().write(true).open(path.with_file_name("records")).unwrap();
        records.set_len(4 << 30).unwrap();
    }
    let before = peak_bytes();
    assert_eq!(case.pixels(), expected);
    let taken = peak_bytes().saturating_sub(before);
    assert!(taken < 400 << 20, "{taken} bytes more at the peak");
}

/// The most memory that this process has had.
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn a_lock_on_every_file_of_the_cache_stops_no_loader() {
    let case = Case::new();
    let expected = case.pixels();
    let locked: Vec<File> = case.kept_files().iter().map(|path| File::open(path).unwrap()).collect();
    for file in &locked {
        file.lock().unwrap();
    }
    // Touched, so that they are put there again.
    for class in fs::read_dir(case.0.path().join("pictures")).unwrap() {
        for picture in fs::read_dir(class.unwrap().path()).unwrap() {
            let picture = File::options().append(true).open(picture.unwrap().path()).unwrap();
            picture.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
    }
    let loader = case.loader();
    assert_eq!(pixels(&loader), expected);
    assert!(loader.snapshot().cache.written_bytes > 0, "something was put beside the locks");
}

#[test]
fn links_and_pipes_in_the_cache_are_not_followed() {
    let case = Case::new();
    let expected = case.pixels();
    let victim = case.0.path().join("victim");
    fs::write(&victim, b"precious").unwrap();
    for (number, path) in case.kept_files().iter().enumerate() {
        fs::remove_file(path).unwrap();
        match number % 3 {
            0 => symlink(&victim, path).unwrap(),
            1 => symlink("/dev/zero", path).unwrap(),
            _ => mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap(),
        }
    }
    assert_eq!(case.pixels(), expected);
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    // Once more with the kinds of files in other places.
    for (number, path) in case.kept().iter().filter(|path| !path.is_dir()).enumerate() {
        fs::remove_file(path).unwrap();
        match number % 2 {
            0 => mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap(),
            _ => symlink(&victim, path).unwrap(),
        }
    }
    assert_eq!(case.pixels(), expected);
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn a_cache_folder_of_another_user_is_not_used() {
    let case = Case::new();
    fs::create_dir(case.cache()).unwrap();
    if std::os::unix::fs::chown(case.cache(), Some(12345), None).is_err() {
        return; // Only root can give a folder away.
    }
    case.pixels();
    assert_eq!(case.kept(), [] as [PathBuf; 0]);
}

#[test]
fn seek_indexes_are_used_where_the_cache_folder_cannot_be_written() {
    let case = Case::new();
    fs::write(case.cache(), b"a file in place of the folder").unwrap();
    let expected = pixels(&Loader::new(case.plan("", "seek_index = \"never\""), &Machine::default()));
    let unusable = Machine { cache_folder: Some(case.cache().into()), ..Machine::default() };
    let loader = Loader::new(case.plan("", ""), &unusable);
    assert_eq!(pixels(&loader), expected);
    // The next epoch is prepared ahead, so some of its samples may be begun before their indexes are there.
    pixels(&loader);
    let seek = loader.snapshot().seek_index;
    assert!(seek.made >= PICTURES, "made in the first epoch: {}", seek.made);
    assert!(seek.used >= PICTURES, "used from then on: {}", seek.used);
}

#[test]
fn a_costs_file_that_is_a_pipe_or_a_device_is_refused_at_once() {
    let case = Case::new();
    let at = |name: &str| case.0.path().join(name);
    mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    symlink("/dev/zero", at("zero")).unwrap();
    let root = at("pictures");
    for name in ["pipe", "zero"] {
        for (setting, order) in [("costs", "planned"), ("replay", "arrival")] {
            let text = format!(
                "batch_size = 4\norder = \"{order}\"\n{setting} = {:?}\nragged = [\"image\"]\n[source]\nkind = \"folder\"\nroot = {root:?}\n",
                at(name)
            );
            let refused = open(&text).unwrap_err().to_string();
            assert!(refused.contains("not a regular file"), "{refused}");
        }
    }
}

#[test]
fn a_changed_file_is_cached_again_in_memory_that_runs_share() {
    let case = Case::new();
    let machine = Machine { memories: Some(Arc::default()), ..Machine::default() };
    let loader = || Loader::new(case.plan("", "[run.cache]\nram = \"64MB\"\nform = \"decoded\""), &machine);
    let first = loader();
    collect(&first).unwrap();
    let root = case.0.path().join("pictures");
    let changed = fs::read_dir(&root).unwrap().next().unwrap().unwrap().path();
    let changed =
        if changed.is_dir() { fs::read_dir(&changed).unwrap().next().unwrap().unwrap().path() } else { changed };
    let picture = fs::read(&changed).unwrap();
    // Trailing bytes do not change the picture, but the length of the file.
    fs::write(&changed, [picture, vec![0; 9]].concat()).unwrap();
    let second = loader();
    let misses_of_epoch = || {
        let before = second.snapshot().cache.misses;
        collect(&second).unwrap();
        second.snapshot().cache.misses - before
    };
    // The first loader prepares its next epoch ahead, so it may cache the file first.
    let misses: u64 = (0..4).map(|_| misses_of_epoch()).sum();
    assert!(misses <= 1, "{misses} misses: only the changed file, and only once");
}
