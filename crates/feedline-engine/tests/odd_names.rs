//! File names that are not UTF-8, in every source and through packing.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use feedline_data::pack::{Content, Damaged, Options, Watch, pack};
use feedline_data::plan::{ByteSize, Registry};
use feedline_data::source::{FilesSource, Source, VolumesSource, open_path};
use feedline_data::store::{BufferSource as _, DiskStore, Store as _, escaped_path};
use feedline_data::testing::{write_pictures, write_volumes};
use feedline_engine::testing::check_source;
use feedline_order::SampleId;

fn odd(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}

/// A folder with an odd name, in which a class and a picture have one.
fn pictures(folder: &Path) -> PathBuf {
    let root = folder.join(odd(b"data\xff"));
    write_pictures(&root, 4, 2).unwrap();
    fs::rename(root.join("class-1"), root.join(odd(b"caf\xe9"))).unwrap();
    let class = root.join("class-0");
    let first = fs::read_dir(&class).unwrap().next().unwrap().unwrap().path();
    fs::copy(&first, class.join(odd(b"\xe9.jpg"))).unwrap();
    fs::copy(&first, class.join(odd(b"\xe8.jpg"))).unwrap();
    fs::copy(&first, class.join(odd(b"\\xe8.jpg"))).unwrap();
    root
}

fn keys(source: &dyn Source) -> Vec<String> {
    (0..source.len()).map(|id| source.key(SampleId(id)).into_owned()).collect()
}

struct NeverStop;

impl Watch for NeverStop {
    fn reached(&mut self, _samples: u64) {}

    fn wants_to_stop(&mut self) -> bool {
        false
    }
}

#[test]
fn a_folder_and_what_is_packed_of_it_have_escaped_keys_and_classes() {
    let folder = tempfile::tempdir().unwrap();
    let root = pictures(folder.path());
    let source = open_path(&escaped_path(&root), &Registry::core()).unwrap();
    check_source(&*source, &Registry::core());
    assert_eq!(source.classes(), ["caf\\xe9", "class-0"]);
    let found = keys(&*source);
    for key in ["class-0/\\xe9.jpg", "class-0/\\xe8.jpg", "class-0/\\x5cxe8.jpg"] {
        assert!(found.iter().any(|found| found == key), "{key} in {found:?}");
    }
    let shards = folder.path().join(odd(b"shards\xfe"));
    let options =
        Options { shard_size: ByteSize(1 << 20), content: Content::AsIs, max_side: None, damaged: Damaged::Keep };
    pack(&*source, &shards, &options, 1, &mut NeverStop).unwrap();
    let packed = open_path(&escaped_path(&shards), &Registry::core()).unwrap();
    check_source(&*packed, &Registry::core());
    assert_eq!((packed.len(), packed.classes()), (source.len(), source.classes()));
    let stem = |key: &str| key.strip_suffix(".jpg").unwrap_or(key).to_owned();
    assert_eq!(keys(&*packed), keys(&*source).iter().map(|key| stem(key)).collect::<Vec<_>>());
}

#[test]
fn a_list_of_files_may_have_odd_names() {
    let folder = tempfile::tempdir().unwrap();
    let root = pictures(folder.path());
    let path = escaped_path(&root.join("class-0").join(odd(b"\xe9.jpg")));
    let source = FilesSource::new(vec![("image".to_owned(), vec![path.clone()])], None).unwrap();
    check_source(&source, &Registry::core());
    let mut bytes = Vec::new();
    DiskStore::below("").unwrap().read(&path, &mut bytes).unwrap();
    assert_eq!(bytes, fs::read(root.join("class-0").join(odd(b"\xe9.jpg"))).unwrap());
    assert_eq!(bytes.room(3).unwrap().len(), 3);
}

#[test]
fn volumes_may_have_odd_names() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join(odd(b"volumes\xff"));
    write_volumes(&root, 2, [4, 5, 6]).unwrap();
    fs::rename(root.join("1"), root.join(odd(b"\xe9"))).unwrap();
    let source = VolumesSource::open("root", std::sync::Arc::new(DiskStore::new(&root))).unwrap();
    assert_eq!(source.len(), 2);
    assert!(keys(&source).iter().any(|key| key.contains("\\xe9")));
}

#[test]
fn members_of_a_shard_may_have_odd_names() {
    let folder = tempfile::tempdir().unwrap();
    let mut builder = tar::Builder::new(Vec::new());
    for name in [b"a/\xe9.jpg".as_slice(), b"a/\xe8.jpg"] {
        let mut header = tar::Header::new_gnu();
        header.set_size(3);
        builder.append_data(&mut header, odd(name), &b"one"[..]).unwrap();
    }
    let path = folder.path().join(odd(b"\xff.tar"));
    fs::write(&path, builder.into_inner().unwrap()).unwrap();
    for given in [path, folder.path().to_owned()] {
        let source = open_path(&escaped_path(&given), &Registry::core()).unwrap();
        assert_eq!(keys(&*source), ["a/\\xe9", "a/\\xe8"]);
    }
}
