//! Tables and records of the cache folder. Whatever the files contain, a record is returned as it was written, or not at all.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use feedline_engine::cache::Shelf;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));

/// Numbers of the written records.
const NUMBERS: [u64; 3] = [0, 2, 5];

fn content(number: u64) -> Vec<u8> {
    format!("record {number} ").repeat(1 + 100 * number as usize).into_bytes()
}

fn below() -> PathBuf {
    PathBuf::from(format!("shelf-{:?}", std::thread::current().id()))
}

fn shelf() -> Shelf {
    Shelf::new(FOLDER.path().to_owned().into(), below(), None)
}

fn folder() -> PathBuf {
    FOLDER.path().join(below())
}

/// Reads all records of a shelf. Input: the length of the table (two bytes, little-endian), the table, and the records.
pub fn run(data: &[u8]) {
    let Some((len, files)) = data.split_first_chunk() else { return };
    let (table, records) = files.split_at(usize::from(u16::from_le_bytes(*len)).min(files.len()));
    fs::create_dir_all(folder()).expect("a folder");
    fs::write(folder().join("table"), table).expect("a table");
    fs::write(folder().join("records"), records).expect("records");
    let shelf = shelf();
    for number in NUMBERS.into_iter().chain([1, u64::MAX]) {
        let mut bytes = Vec::new();
        shelf.has(number);
        let found = shelf.get(number, number.wrapping_add(100), &mut bytes, |len| {
            assert!(len <= records.len(), "{len} bytes of {}", records.len());
            Ok(())
        });
        assert!(found != Ok(true) || bytes == content(number), "record {number} is another one");
    }
    shelf.put(1, 101, b"one more");
    let mut bytes = Vec::new();
    assert!(shelf.get(1, 101, &mut bytes, |_| Ok(())) == Ok(true) && bytes == b"one more", "what is put is there");
}

/// Valid files.
pub fn seeds() -> Vec<Vec<u8>> {
    let shelf = shelf();
    for number in NUMBERS {
        assert!(shelf.put(number, 100 + number, &content(number)));
    }
    let read = |name: &str| fs::read(Path::new(&folder()).join(name)).expect("a file of the shelf");
    let (table, records) = (read("table"), read("records"));
    vec![[&(table.len() as u16).to_le_bytes(), &*table, &records].concat()]
}
