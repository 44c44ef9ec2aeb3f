//! Tar shards from outside: what their samples are, and that damage, staleness and forgery of indexes are noticed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use feedline_data::plan::Registry;
use feedline_data::source::{Origin, Part, Source, SubsetSource, TarSource};
use feedline_data::store::StoreError;
use feedline_engine::testing::check_source;
use feedline_order::{Ordinal, SampleId};
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64;

/// Writes a tar file, each at a time of its own: file systems tell times in steps of some milliseconds.
fn write_tar(path: &Path, files: &[(String, Vec<u8>)]) {
    static SECONDS: AtomicU64 = AtomicU64::new(1_000_000);
    let mut builder = tar::Builder::new(fs::File::create(path).unwrap());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, bytes.as_slice()).unwrap();
    }
    let modified = UNIX_EPOCH + Duration::from_secs(SECONDS.fetch_add(1, Ordering::Relaxed));
    builder.into_inner().unwrap().set_modified(modified).unwrap();
}

fn sample(key: &str, label: u64, bytes: usize) -> Vec<(String, Vec<u8>)> {
    let picture = format!("{key}-picture").into_bytes().into_iter().cycle().take(bytes).collect();
    vec![(format!("{key}.jpg"), picture), (format!("{key}.cls"), label.to_string().into_bytes())]
}

/// A folder with two shards of three samples, and a folder for indexes.
struct Set {
    data: TempDir,
    cache: TempDir,
}

impl Set {
    fn new() -> Self {
        let this = Self { data: tempfile::tempdir().unwrap(), cache: tempfile::tempdir().unwrap() };
        for shard in 0..2 {
            let samples = (0..3).flat_map(|number| sample(&format!("s{shard}/{number}"), number + shard, 900));
            write_tar(&this.shard(shard), &samples.collect::<Vec<_>>());
        }
        this
    }

    fn shard(&self, number: u64) -> PathBuf {
        self.data.path().join(format!("shard-{number}.tar"))
    }

    fn registry(&self) -> Registry {
        Registry::core().with_cache_folder(self.cache.path().to_owned())
    }

    fn open(&self) -> Result<TarSource, String> {
        let pattern = format!("{}/*.tar", self.data.path().display());
        TarSource::open(vec![pattern], &self.registry()).map_err(|error| error.to_string())
    }

    /// The indexes in the cache folder.
    fn indexes(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.cache.path().join("shards")) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Moves the index of the first shard from the cache to its place beside the shard.
    fn index_beside(&self) -> PathBuf {
        self.open().unwrap();
        let is_first = |path: &PathBuf| {
            let bytes = fs::read(path).unwrap();
            bytes.windows(4).any(|window| window == b"s0/0")
        };
        let index = self.indexes().into_iter().find(is_first).unwrap();
        let beside = self.data.path().join("shard-0.tar.index");
        fs::rename(index, &beside).unwrap();
        beside
    }
}

/// All bytes of all samples: key, label, picture.
fn contents(source: &dyn Source) -> Result<Vec<(String, i64, Vec<u8>)>, StoreError> {
    let read = |id, field: &str| {
        let Origin::Part { object, range } = source.origin(id, field) else { panic!("shards store all fields") };
        assert!(range.end <= object.len());
        let mut bytes = vec![0; (range.end - range.start) as usize];
        object.read_at(range.start, &mut bytes).map(|()| bytes)
    };
    let sample = |ordinal| {
        let id = source.id_at(Ordinal(ordinal));
        let label = i64::from_ne_bytes(read(id, "label")?.try_into().unwrap());
        Ok((source.key(id).into_owned(), label, read(id, "image")?))
    };
    (0..source.len()).map(sample).collect()
}

#[test]
fn the_tar_source_conforms_with_and_without_a_cache_folder_and_in_parts() {
    let set = Set::new();
    for registry in [Registry::core(), set.registry(), set.registry()] {
        let pattern = format!("{}/*.tar", set.data.path().display());
        let source: Arc<dyn Source> = Arc::new(TarSource::open(vec![pattern], &registry).unwrap());
        assert_eq!(source.fields().names(), "\"image\", \"label\"");
        check_source(&*source, &registry);
        let part =
            SubsetSource::new(Arc::clone(&source), Part::Share { seed: 1, from: 0.0, to: 0.5, by: None }).unwrap();
        check_source(&part, &registry);
        let (_, _, bytes) = &contents(&*source).unwrap()[part.id_at(Ordinal(2)).0 as usize];
        assert_eq!(&contents(&part).unwrap()[2].2, bytes);
    }
    assert_eq!(set.indexes().len(), 2);
}

#[test]
fn samples_are_numbered_by_the_names_of_their_shards_and_their_place_there() {
    let set = Set::new();
    let found = contents(&set.open().unwrap()).unwrap();
    let keys: Vec<&str> = found.iter().map(|(key, ..)| key.as_str()).collect();
    assert_eq!(keys, ["s0/0", "s0/1", "s0/2", "s1/0", "s1/1", "s1/2"]);
    assert_eq!(found[4].1, 2);
    assert!(found[4].2.starts_with(b"s1/1-pictures1/1"));
}

#[test]
fn identity_is_that_of_keys_fields_and_labels_however_they_are_divided() {
    let set = Set::new();
    let two = set.open().unwrap().identity();
    let all: Vec<_> = (0..2).flat_map(|s| (0..3).flat_map(move |n| sample(&format!("s{s}/{n}"), n + s, 300))).collect();
    let one = Set::new();
    fs::remove_file(one.shard(1)).unwrap();
    write_tar(&one.shard(0), &all);
    assert_eq!(one.open().unwrap().identity(), two);
    write_tar(&one.shard(0), &all[..10]);
    assert_ne!(one.open().unwrap().identity(), two);
}

#[test]
fn every_changed_byte_of_an_index_is_noticed_and_costs_no_sample() {
    let set = Set::new();
    let index = set.index_beside();
    let expected = contents(&set.open().unwrap()).unwrap();
    let identity = set.open().unwrap().identity();
    let bytes = fs::read(&index).unwrap();
    for place in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1 << (place % 8);
        fs::write(&index, &damaged).unwrap();
        let source = set.open().unwrap();
        assert_eq!(contents(&source).unwrap(), expected, "byte {place}");
        assert_eq!(source.identity(), identity, "byte {place}");
    }
    for cut in (0..bytes.len()).step_by(7) {
        fs::write(&index, &bytes[..cut]).unwrap();
        assert_eq!(contents(&set.open().unwrap()).unwrap(), expected, "cut at {cut}");
    }
}

#[test]
fn an_index_damaged_while_the_source_is_open_is_made_anew() {
    for cache_is_there in [true, false] {
        let set = Set::new();
        let index = set.index_beside();
        let expected = contents(&set.open().unwrap()).unwrap();
        let registry = if cache_is_there { set.registry() } else { Registry::core() };
        let pattern = format!("{}/*.tar", set.data.path().display());
        let source = TarSource::open(vec![pattern], &registry).unwrap();
        let len = fs::metadata(&index).unwrap().len();
        fs::write(&index, vec![7; len as usize]).unwrap();
        assert_eq!(contents(&source).unwrap(), expected);
    }
}

/// Puts `text` into the head of an index in place of `old`, with lengths and checksum that are right.
fn forge(bytes: &[u8], old: &str, new: &str) -> Vec<u8> {
    let len = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let head = String::from_utf8(bytes[16..16 + len].to_vec()).unwrap().replacen(old, new, 1);
    let mut forged = [&bytes[..12], &(head.len() as u32).to_le_bytes(), head.as_bytes()].concat();
    forged.extend(xxh3_64(&forged).to_le_bytes());
    forged.extend(&bytes[16 + len + 8..]);
    forged
}

#[test]
fn a_forged_head_neither_crashes_nor_reads_outside() {
    let set = Set::new();
    let index = set.index_beside();
    let expected = contents(&set.open().unwrap()).unwrap();
    let bytes = fs::read(&index).unwrap();
    let len = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let head = String::from_utf8(bytes[16..16 + len].to_vec()).unwrap();
    let numbers: Vec<&str> = head.split(|c: char| !c.is_ascii_digit()).filter(|text| !text.is_empty()).collect();
    assert!(numbers.len() > 10);
    let mut refused = 0;
    for number in numbers {
        for value in ["0", "1", "2", "4", "511", "1099511627776", "9223372036854775807", "18446744073709551615"] {
            fs::write(&index, forge(&bytes, &format!(":{number}"), &format!(":{value}"))).unwrap();
            match set.open() {
                Ok(source) if source.len() == 6 => {
                    refused += usize::from(contents(&source).is_ok_and(|found| found == expected));
                }
                Ok(source) => drop(contents(&source)),
                Err(_) => {}
            }
        }
    }
    assert!(refused > 0, "no forged head was refused");
    fs::write(&index, forge(&bytes, "\"image\"", "\"label\"")).unwrap();
    drop(set.open().map(|source| contents(&source)));
}

#[test]
fn a_changed_shard_is_listed_anew() {
    let check = |change: &dyn Fn(&Path)| {
        let set = Set::new();
        set.index_beside();
        change(&set.shard(0));
        let source = set.open().unwrap();
        assert_eq!(source.key(SampleId(0)), "new/0");
        assert_eq!(contents(&source).unwrap()[1].1, 8);
        let again = set.open().unwrap();
        assert_eq!(again.key(SampleId(2)), "new/2", "the cached index is the one that fits");
    };
    let renamed =
        |bytes: usize| (0..3).flat_map(move |n| sample(&format!("new/{n}"), n + 7, bytes)).collect::<Vec<_>>();
    check(&|path| write_tar(path, &renamed(900)));
    check(&|path| write_tar(path, &renamed(3000)));
}

#[test]
fn a_copied_shard_keeps_its_index_and_a_change_in_its_middle_is_noticed_when_it_is_used() {
    let set = Set::new();
    set.index_beside();
    let expected = contents(&set.open().unwrap()).unwrap();
    let bytes = fs::read(set.shard(0)).unwrap();
    fs::write(set.shard(0), &bytes).unwrap();
    assert_eq!(contents(&set.open().unwrap()).unwrap(), expected);
    assert_eq!(set.indexes().len(), 1, "the index beside the shard was used");
    let mut samples: Vec<_> = (0..3).flat_map(|number| sample(&format!("s0/{number}"), number, 900)).collect();
    samples[2].0 = "s0/9.jpg".to_owned();
    samples[3].0 = "s0/9.cls".to_owned();
    write_tar(&set.shard(0), &samples);
    let source = set.open().unwrap();
    let error = contents(&source).unwrap_err().to_string();
    assert!(error.contains("shard-0.tar") && error.contains("open the source again"), "{error}");
    assert_eq!(set.open().unwrap().key(SampleId(1)), "s0/9");
}

#[test]
fn a_shard_that_shrinks_or_goes_is_an_error_that_names_it() {
    let set = Set::new();
    let source = set.open().unwrap();
    fs::write(set.shard(0), b"short").unwrap();
    fs::remove_file(set.shard(1)).unwrap();
    let error = contents(&source).unwrap_err().to_string();
    assert!(error.contains("shard-0.tar") && error.contains("it has 5 bytes, and had"), "{error}");
    let Origin::Part { object, .. } = source.origin(SampleId(5), "image") else { panic!("stored") };
    assert!(object.read_at(0, &mut []).unwrap_err().to_string().contains("shard-1.tar"));
    assert!(source.key(SampleId(5)).contains("shard-1.tar#2"));
}

#[test]
fn fields_that_some_samples_lack_are_left_out_and_classes_that_are_no_numbers_are_text() {
    let set = Set::new();
    let mut samples = sample("a", 1, 100);
    samples.push(("a.json".to_owned(), b"{}".to_vec()));
    samples.extend([("b.jpg".to_owned(), vec![1]), ("b.cls".to_owned(), b"cat".to_vec())]);
    write_tar(&set.shard(0), &samples);
    assert_eq!(set.open().unwrap().fields().names(), "\"image\", \"cls\"");
    let apart: Vec<(String, Vec<u8>)> = vec![("a.one".to_owned(), vec![1]), ("b.two".to_owned(), vec![1])];
    write_tar(&set.shard(0), &apart);
    fs::remove_file(set.shard(1)).unwrap();
    let error = set.open().unwrap_err();
    assert!(error.contains("no field is in each of the 2 samples") && error.contains("\"one\" (in 1)"), "{error}");
    write_tar(&set.shard(0), &[]);
    assert!(set.open().unwrap_err().contains("no samples in 1 shards"));
}

#[test]
fn a_sample_without_a_class_is_no_reason_to_rebuild_an_index() {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_tar(&data.path().join("0.tar"), &[("a.jpg".to_owned(), vec![7; 90]), ("b.jpg".to_owned(), vec![8; 90])]);
    let registry = Registry::core().with_cache_folder(cache.path().to_owned());
    let source = TarSource::open(vec![format!("{}/*.tar", data.path().display())], &registry).unwrap();
    let files = || {
        let mut files = Vec::new();
        let mut folders = vec![cache.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() { folders.push(entry) } else { files.push(entry) }
            }
        }
        files
    };
    assert_eq!(source.key(SampleId(0)), "a", "the shard and its index are open now");
    assert!(!files().is_empty(), "the index was saved when the shard was listed");
    for file in files() {
        fs::remove_file(file).unwrap();
    }
    assert_eq!(source.class_of(SampleId(0)), None);
    assert!(files().is_empty(), "the shard was listed again");
}
