//! Packed shards from inside: what their indexes hold, and that no damage of them reaches a sample.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;

use feedline_codec::{SeekIndex, read_header};
use feedline_data::pack::{Content, Damaged, Options, PackError, Summary, Watch, pack};
use feedline_data::plan::{ByteSize, Registry};
use feedline_data::source::{Origin, Source, TarSource, open_path};
use feedline_data::testing::write_pictures;
use feedline_engine::testing::check_source;
use feedline_order::SampleId;
use tempfile::TempDir;

/// Stops after some questions.
struct StopAfter(u64);

impl Watch for StopAfter {
    fn reached(&mut self, _samples: u64) {}

    fn wants_to_stop(&mut self) -> bool {
        if self.0 == 0 {
            return true;
        }
        self.0 -= 1;
        false
    }
}

fn options(content: Content) -> Options {
    Options { shard_size: ByteSize(12_000), content, max_side: None, damaged: Damaged::Keep }
}

fn packed(folder: &Path, content: Content) -> Result<Summary, PackError> {
    let source = open_path(folder.join("in").to_str().unwrap(), &Registry::core()).unwrap();
    pack(&*source, &folder.join("out"), &options(content), 2, &mut StopAfter(u64::MAX))
}

fn set(content: Content) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_pictures(&folder.path().join("in"), 7, 3).unwrap();
    packed(folder.path(), content).unwrap();
    folder
}

fn open(folder: &Path) -> TarSource {
    let registry = Registry::core().with_cache_folder(folder.join("cache"));
    TarSource::open(vec![folder.join("out").display().to_string()], &registry).unwrap()
}

/// Label, picture, dimensions and seek index of a sample.
type Sample = (Option<i64>, Vec<u8>, Option<(u32, u32)>, Vec<u8>);

fn sample(source: &TarSource, id: u64) -> Sample {
    let id = SampleId(id);
    let Origin::Part { object, range } = source.origin(id, "image") else { panic!("stored") };
    let mut picture = vec![0; (range.end - range.start) as usize];
    object.read_at(range.start, &mut picture).unwrap();
    let mut record = Vec::new();
    if !source.seek_record(id, "image", &mut record).unwrap() {
        record.clear();
    }
    (source.class_of(id), picture, source.dimensions(id, "image").unwrap(), record)
}

#[test]
fn an_index_holds_labels_dimensions_and_the_seek_index_of_each_picture() {
    for content in [Content::AsIs, Content::Pixels] {
        let folder = set(content);
        let source = open(folder.path());
        check_source(&source, &Registry::core());
        assert_eq!(source.classes(), ["class-0", "class-1", "class-2"]);
        for id in 0..7 {
            let (label, picture, dimensions, record) = sample(&source, id);
            let header = read_header(&picture).unwrap();
            assert_eq!(dimensions, Some((header.width, header.height)));
            assert_eq!(record, SeekIndex::build(&picture).unwrap().to_bytes());
            assert_eq!(label, Some([0, 0, 0, 1, 1, 2, 2][id as usize]));
        }
        assert!(!folder.path().join("cache").exists(), "nothing had to be listed");
    }
}

#[test]
fn damage_anywhere_in_a_packed_index_costs_no_sample() {
    let folder = set(Content::AsIs);
    let index = folder.path().join("out/shard-000000.tar.index");
    let before = open(folder.path());
    let expected: Vec<Sample> = (0..7).map(|id| sample(&before, id)).collect();
    let bytes = fs::read(&index).unwrap();
    for place in (0..bytes.len()).step_by(3) {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x40;
        fs::write(&index, damaged).unwrap();
        let source = open(folder.path());
        assert_eq!(source.identity(), before.identity(), "byte {place}");
        assert_eq!(source.classes(), before.classes(), "byte {place}");
        for (id, (label, picture, _, record)) in expected.iter().enumerate() {
            let found = sample(&source, id as u64);
            assert_eq!((&found.0, &found.1), (label, picture), "byte {place}");
            assert!(found.3.is_empty() || found.3 == *record, "byte {place}");
        }
    }
}

#[test]
fn a_run_that_is_stopped_anywhere_goes_on_to_the_same_shards() {
    let whole = set(Content::AsIs);
    let shards = |folder: &Path| -> Vec<Vec<u8>> {
        (0..20).map_while(|number| fs::read(folder.join(format!("out/shard-{number:06}.tar"))).ok()).collect()
    };
    let folder = tempfile::tempdir().unwrap();
    write_pictures(&folder.path().join("in"), 7, 3).unwrap();
    for entry in
        fs::read_dir(whole.path().join("in")).unwrap().flat_map(|class| fs::read_dir(class.unwrap().path()).unwrap())
    {
        let theirs = entry.unwrap().path();
        let ours = folder.path().join("in").join(theirs.strip_prefix(whole.path().join("in")).unwrap());
        let modified = fs::metadata(theirs).unwrap().modified().unwrap();
        fs::File::open(ours).unwrap().set_modified(modified).unwrap();
    }
    let source = open_path(folder.path().join("in").to_str().unwrap(), &Registry::core()).unwrap();
    let mut stops = 0;
    for questions in 1.. {
        match pack(&*source, &folder.path().join("out"), &options(Content::AsIs), 1, &mut StopAfter(questions)) {
            Ok(_) => break,
            Err(PackError::Cancelled) => stops += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(stops >= 3, "stopped {stops} times");
    assert!(shards(folder.path()).len() > 1);
    assert!(shards(folder.path()) == shards(whole.path()), "shards differ");
}

#[test]
fn two_runs_write_the_same_shards_and_the_same_indexes() {
    let folder = set(Content::AsIs);
    let files = || -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(folder.path().join("out")).unwrap().map(|entry| entry.unwrap().path());
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let shards = entries.filter(|path| !name(path).starts_with('.'));
        let mut files: Vec<_> = shards.map(|path| (name(&path), fs::read(&path).unwrap())).collect();
        files.sort();
        files
    };
    let first = files();
    assert!(first.iter().any(|(name, _)| name.contains(".tar.index")));
    fs::rename(folder.path().join("out"), folder.path().join("before")).unwrap();
    packed(folder.path(), Content::AsIs).unwrap();
    for ((name, bytes), (_, before)) in files().iter().zip(&first) {
        assert!(bytes == before, "{name} differs");
    }
    // The index of a shard fits it: nothing is listed.
    open(folder.path());
    assert!(!folder.path().join("cache").exists());
}
