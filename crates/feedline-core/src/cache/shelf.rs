//! Numbered records on disk, shared by processes.
//!
//! In: a number, a stamp of what the record was made from, bytes. Out: the same bytes, if the stamp is the same and nothing
//! was damaged; else nothing. Two files: `records`, to which is only appended, and `table`, which says for each number where
//! its record is. To open is O(1), to read two `pread`s; no table is held in memory.
//!
//! Always true: a process killed at any moment leaves at most bytes that no table entry names. A table entry that is torn,
//! old or forged leads to a record that does not name its number and stamp under its checksum, which counts as absent.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use xxhash_rust::xxh3::xxh3_64;

/// The first bytes of both files; changes when the rest means something else.
const MAGIC: [u8; 16] = *b"feedline shelf 1";
const ENTRY: u64 = 16;
/// The file of the records.
const RECORDS: &str = "records";
/// Checksum, number and stamp.
const HEAD: usize = 24;
/// Longer records are taken for damage.
const MOST_RECORD: u32 = 1 << 30;

/// Records on disk by number.
#[derive(Debug)]
pub struct Shelf {
    folder: PathBuf,
    limit: Option<u64>,
    /// Opened when first used, made when first written to.
    files: OnceLock<Files>,
    has_failed: AtomicBool,
    /// Held while appending: the lock of a file keeps other processes away, not other threads.
    appending: Mutex<()>,
}

#[derive(Debug)]
struct Files {
    table: File,
    records: File,
}

impl Shelf {
    /// The shelf in `folder`, which is made when something is put on it. It takes no more than `limit` bytes.
    pub fn new(folder: PathBuf, limit: Option<u64>) -> Self {
        Self { folder, limit, files: OnceLock::new(), has_failed: AtomicBool::new(false), appending: Mutex::new(()) }
    }

    /// Bytes of the other shelves in the same place.
    pub fn bytes_beside(folder: &Path) -> u64 {
        let places = folder.parent().and_then(|parent| fs::read_dir(parent).ok()).into_iter().flatten().flatten();
        let others = places.map(|entry| entry.path()).filter(|path| path != folder);
        others.filter_map(|path| fs::metadata(path.join(RECORDS)).ok()).map(|meta| meta.len()).sum()
    }

    /// Whether something can be put on it, as far as is known.
    pub fn takes_records(&self) -> bool {
        !self.has_failed.load(Ordering::Relaxed)
    }

    /// Whether there is a record of this number; whether it is whole and of what stamp is said when it is read.
    pub fn has(&self, number: u64) -> bool {
        self.files().is_some_and(|files| files.entry(number).is_some())
    }

    /// Reads a record into `bytes`; says whether it is there, whole, and of this stamp.
    pub fn get(&self, number: u64, stamp: u64, bytes: &mut Vec<u8>) -> bool {
        let Some(files) = self.files() else { return false };
        let Some((offset, length)) = files.entry(number) else { return false };
        bytes.resize(length as usize, 0);
        if files.records.read_exact_at(bytes, offset).is_err() {
            return false;
        }
        let is_right = bytes[..HEAD] == head(number, stamp, &bytes[HEAD..]);
        bytes.drain(..HEAD);
        is_right
    }

    /// Keeps a record; one of the same number is replaced. Says whether there was room. Where nothing can be written, that
    /// is said once, and nothing is kept from then on.
    pub fn put(&self, number: u64, stamp: u64, bytes: &[u8]) -> bool {
        if !self.takes_records() {
            return false;
        }
        self.try_put(number, stamp, bytes).unwrap_or_else(|error| {
            if !self.has_failed.swap(true, Ordering::Relaxed) {
                tracing::warn!(folder = %self.folder.display(), %error, "could not write to the cache folder");
            }
            false
        })
    }

    fn try_put(&self, number: u64, stamp: u64, bytes: &[u8]) -> io::Result<bool> {
        if self.files().is_none() {
            let made = open(&self.folder, true)?;
            // Another thread may have been faster; its files are the same.
            self.files.get_or_init(|| made);
        }
        let Some(files) = self.files() else { return Ok(false) };
        let record_len = (HEAD + bytes.len()) as u64;
        let offset = {
            let _turn = self.appending.lock().unwrap_or_else(PoisonError::into_inner);
            let _lock = Lock::take(&files.records)?;
            let end = files.records.metadata()?.len();
            if self.limit.is_some_and(|limit| end + record_len > limit) {
                return Ok(false);
            }
            files.records.write_all_at(&head(number, stamp, bytes), end)?;
            files.records.write_all_at(bytes, end + HEAD as u64)?;
            end
        };
        let mut entry = [0; ENTRY as usize];
        entry[..8].copy_from_slice(&offset.to_le_bytes());
        entry[8..12].copy_from_slice(&(record_len as u32).to_le_bytes());
        files.table.write_all_at(&entry, place_of(number))?;
        Ok(true)
    }

    fn files(&self) -> Option<&Files> {
        if let Some(files) = self.files.get() {
            return Some(files);
        }
        let found = open(&self.folder, false).ok()?;
        Some(self.files.get_or_init(|| found))
    }
}

impl Files {
    /// Where a record is and how long, if the table names one.
    fn entry(&self, number: u64) -> Option<(u64, u32)> {
        let mut entry = [0; ENTRY as usize];
        self.table.read_exact_at(&mut entry, place_of(number)).ok()?;
        let [a, b, c, d, e, f, g, h, length @ .., _, _, _, _] = entry;
        let (offset, length) = (u64::from_le_bytes([a, b, c, d, e, f, g, h]), u32::from_le_bytes(length));
        (HEAD as u32..=MOST_RECORD).contains(&length).then_some((offset, length))
    }
}

fn place_of(number: u64) -> u64 {
    number.saturating_mul(ENTRY).saturating_add(MAGIC.len() as u64)
}

fn head(number: u64, stamp: u64, bytes: &[u8]) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[8..16].copy_from_slice(&number.to_le_bytes());
    head[16..].copy_from_slice(&stamp.to_le_bytes());
    let checksum = xxh3_64(bytes) ^ xxh3_64(&head[8..]).rotate_left(1);
    head[..8].copy_from_slice(&checksum.to_le_bytes());
    head
}

fn open(folder: &Path, make: bool) -> io::Result<Files> {
    if make {
        fs::create_dir_all(folder)?;
    }
    let open = |name: &str| -> io::Result<File> {
        let file = OpenOptions::new().read(true).write(true).create(make).truncate(false).open(folder.join(name));
        // A cache that cannot be written can still be read.
        let file = file.or_else(|error| if make { Err(error) } else { File::open(folder.join(name)) })?;
        let is_ready = || {
            let mut magic = [0; MAGIC.len()];
            file.read_exact_at(&mut magic, 0).is_ok() && magic == MAGIC
        };
        if is_ready() {
            return Ok(file);
        }
        if !make {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let lock = Lock::take(&file)?;
        // Another process may have been faster.
        if !is_ready() {
            file.set_len(0)?;
            file.write_all_at(&MAGIC, 0)?;
        }
        drop(lock);
        Ok(file)
    };
    let (records, table) = (open(RECORDS)?, open("table")?);
    Ok(Files { table, records })
}

/// Keeps other processes and threads from appending.
struct Lock<'a>(&'a File);

impl<'a> Lock<'a> {
    fn take(file: &'a File) -> io::Result<Self> {
        file.lock()?;
        Ok(Self(file))
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        self.0.unlock().unwrap_or_else(|error| tracing::warn!(%error, "could not unlock a file of the cache"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(folder: &Path) -> Shelf {
        let shelf = Shelf::new(folder.join("shelf"), None);
        for number in [0, 7, 3] {
            assert!(shelf.put(number, 100 + number, format!("record {number}").as_bytes()));
        }
        shelf
    }

    fn read(shelf: &Shelf, number: u64, stamp: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        shelf.get(number, stamp, &mut bytes).then_some(bytes)
    }

    #[test]
    fn what_was_put_is_there_for_every_process_and_of_its_stamp_only() {
        let folder = tempfile::tempdir().unwrap();
        let first = filled(folder.path());
        let second = Shelf::new(folder.path().join("shelf"), None);
        for shelf in [&first, &second] {
            assert_eq!(read(shelf, 7, 107), Some(b"record 7".to_vec()));
            assert_eq!(read(shelf, 7, 108), None);
            assert_eq!(read(shelf, 4, 104), None);
            assert_eq!(read(shelf, u64::MAX, 0), None);
        }
        assert!(second.put(7, 200, b"newer"));
        assert_eq!((read(&first, 7, 107), read(&first, 7, 200)), (None, Some(b"newer".to_vec())));
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        filled(folder.path());
        for name in ["table", "records"] {
            let path = folder.path().join("shelf").join(name);
            let sound = fs::read(&path).unwrap();
            for place in 0..sound.len() {
                let mut damaged = sound.clone();
                damaged[place] ^= 0x40;
                fs::write(&path, &damaged).unwrap();
                let shelf = Shelf::new(folder.path().join("shelf"), None);
                for number in [0, 3, 7] {
                    let found = read(&shelf, number, 100 + number);
                    assert!(found.is_none_or(|found| found == format!("record {number}").as_bytes()), "{name} {place}");
                }
            }
            fs::write(&path, &sound[..sound.len() / 2]).unwrap();
            assert_eq!(read(&Shelf::new(folder.path().join("shelf"), None), 3, 103), None, "{name} cut short");
            fs::write(&path, &sound).unwrap();
        }
    }

    #[test]
    fn a_limit_is_kept_and_what_is_in_stays() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(folder.path().to_owned(), Some(1000));
        let kept = (0..100).filter(|&number| shelf.put(number, 0, &[7; 100])).count();
        assert_eq!(kept, 7);
        assert!((0..7).all(|number| read(&shelf, number, 0) == Some(vec![7; 100])));
        assert!(fs::metadata(folder.path().join("records")).unwrap().len() <= 1000);
    }

    #[test]
    fn threads_and_processes_append_beside_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let shelves: Vec<Shelf> = (0..2).map(|_| Shelf::new(folder.path().to_owned(), None)).collect();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let shelf = &shelves[thread as usize % 2];
                scope.spawn(move || (0..50).for_each(|n| assert!(shelf.put(n * 4 + thread, n, &[thread as u8; 300]))));
            }
        });
        for number in 0..200 {
            assert_eq!(read(&shelves[0], number, number / 4), Some(vec![(number % 4) as u8; 300]));
        }
    }

    #[test]
    fn a_folder_that_cannot_be_made_keeps_nothing_and_breaks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), b"").unwrap();
        let shelf = Shelf::new(folder.path().join("file/below"), None);
        assert!(!shelf.put(0, 0, b"x"));
        assert_eq!(read(&shelf, 0, 0), None);
    }
}
