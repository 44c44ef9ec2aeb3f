//! Numbered records on disk, shared by processes.
//!
//! In: a number, a stamp of what the record was made from, and bytes. Out: the same bytes, if the stamp matches and the record is
//! intact; otherwise nothing. There are two files. `records` is only appended to. `table` contains the place of each record.
//! Opening takes O(1), a read takes three system calls (four for a long record), and no table is held in memory.
//!
//! Always true:
//! - A process killed at any moment leaves at most some bytes that no table entry refers to.
//! - A table entry that is torn, old or forged leads to a record whose head does not match its number, stamp, length and checksum.
//!   Such a record counts as absent. Memory is allocated only for a record with a valid head that ends inside the file.
//! - No process waits for another: a record is appended by one `write` to a file opened with `O_APPEND`.

use std::fs::{self, File};
use std::io::{self, IoSlice, Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use feedline_data::memory::NoMemory;
use feedline_data::private_files::{Access, CacheFolder, PrivateFolder};
use feedline_memory::Mutex;
use xxhash_rust::xxh3::xxh3_64;

/// The first bytes of both files. Changes with the format.
const MAGIC: [u8; 16] = *b"feedline shelf 2";
/// Size of a table entry: offset of the record (8 bytes), its length including the head (4), unused (4).
const ENTRY: u64 = 16;
const RECORDS: &str = "records";
const TABLE: &str = "table";
/// Size of a record's head: checksum of the head, number, stamp, length including the head, checksum of the bytes.
const HEAD: usize = 40;
/// Bytes to read at first, including the head. Most records are not longer.
const FIRST_READ: usize = 4096;

/// Records on disk by number.
#[derive(Debug)]
pub struct Shelf {
    cache_folder: CacheFolder,
    below: PathBuf,
    limit: Option<u64>,
    /// Opened at the first use, created at the first write.
    files: OnceLock<Files>,
    /// Set by the first failed write. From then on nothing is written.
    has_failed: AtomicBool,
    /// Held while appending: `append` reads the file position after its write, and the threads of a process share the position.
    appending: Mutex<()>,
}

#[derive(Debug)]
struct Files {
    table: File,
    records: File,
}

impl Shelf {
    /// Upper limit of a record including its head. Longer ones are refused, and count as absent when read.
    pub(crate) const MAX_RECORD_BYTES: usize = 1 << 30;

    /// The longest content of a record.
    pub(crate) const MAX_CONTENT_BYTES: usize = Self::MAX_RECORD_BYTES - HEAD;

    /// The shelf in the folder `below` a cache folder, created at the first write. It stays below `limit` bytes, except for one
    /// record of each other process that appends at the same moment.
    pub fn new(cache_folder: CacheFolder, below: PathBuf, limit: Option<u64>) -> Self {
        let (files, has_failed, appending) = (OnceLock::new(), AtomicBool::new(false), Mutex::new(()));
        Self { cache_folder, below, limit, files, has_failed, appending }
    }

    /// Total bytes of the records of all other shelves that lie in the same parent folder as `folder`.
    pub(crate) fn bytes_beside(folder: &Path) -> u64 {
        let places = folder.parent().and_then(|parent| fs::read_dir(parent).ok()).into_iter().flatten().flatten();
        let others = places.map(|entry| entry.path()).filter(|path| path != folder);
        others.filter_map(|path| fs::symlink_metadata(path.join(RECORDS)).ok()).map(|meta| meta.len()).sum()
    }

    /// Whether records can be written, as far as known.
    pub(crate) fn takes_records(&self) -> bool {
        !self.has_failed.load(Ordering::Relaxed)
    }

    /// Whether there is a record with this number. Reading it shows whether it is intact and has the right stamp.
    pub fn has(&self, number: u64) -> bool {
        self.files().is_some_and(|files| files.entry(number).is_some())
    }

    /// Reads a record into `bytes`. Returns whether it exists, is intact and has this stamp. `reserve` gets its length before memory
    /// is allocated.
    pub fn get(
        &self,
        number: u64,
        stamp: u64,
        bytes: &mut Vec<u8>,
        reserve: impl FnOnce(usize) -> Result<(), NoMemory>,
    ) -> Result<bool, NoMemory> {
        let Some(files) = self.files() else { return Ok(false) };
        let Some((offset, length)) = files.entry(number) else { return Ok(false) };
        let mut first = [0; FIRST_READ];
        // One read fetches the head and, for most records, all of the content.
        let first = &mut first[..length.min(FIRST_READ)];
        if files.records.read_exact_at(first, offset).is_err() {
            return Ok(false);
        }
        let Some((head, start)) = first.split_first_chunk::<HEAD>() else { return Ok(false) };
        let ends_inside = || {
            let end = offset.checked_add(length as u64);
            files.records.metadata().is_ok_and(|meta| end.is_some_and(|end| end <= meta.len()))
        };
        // Check the head before any memory is allocated: a forged length must not allocate.
        let Some(checksum) = RecordHead::checksum_in(head, number, stamp, length).filter(|_| ends_inside()) else {
            return Ok(false);
        };
        let content = length - HEAD;
        reserve(content)?;
        bytes.clear();
        bytes.try_reserve_exact(content).map_err(|_| NoMemory::Exhausted { bytes: content as u64 })?;
        bytes.extend_from_slice(start);
        bytes.resize(content, 0);
        let rest = &mut bytes[start.len()..];
        Ok(files.records.read_exact_at(rest, offset + (HEAD + start.len()) as u64).is_ok()
            && xxh3_64(bytes) == checksum)
    }

    /// Writes a record, replacing one with the same number. Returns whether it was written: `false` if there is no room, and from
    /// the first failed write on. The first failed write is logged.
    pub fn put(&self, number: u64, stamp: u64, bytes: &[u8]) -> bool {
        if !self.takes_records() {
            return false;
        }
        self.try_put(number, stamp, bytes).unwrap_or_else(|error| {
            self.has_failed.store(true, Ordering::Relaxed);
            self.cache_folder.warn(&error);
            false
        })
    }

    fn try_put(&self, number: u64, stamp: u64, bytes: &[u8]) -> io::Result<bool> {
        let length = HEAD + bytes.len();
        if length > Self::MAX_RECORD_BYTES {
            return Ok(false);
        }
        if self.files().is_none() {
            let made = create(&PrivateFolder::create(&self.cache_folder, &self.below)?)?;
            // Another thread may have been faster. Its files are the same.
            self.files.get_or_init(|| made);
        }
        let Some(files) = self.files() else { return Ok(false) };
        // The record is written before its table entry. A kill between the two leaves bytes without an entry.
        let Some(offset) = self.append(&files.records, &RecordHead::new(number, stamp, bytes), bytes)? else {
            return Ok(false);
        };
        let mut entry = [0; ENTRY as usize];
        entry[..8].copy_from_slice(&offset.to_le_bytes());
        entry[8..12].copy_from_slice(&(length as u32).to_le_bytes());
        files.table.write_all_at(&entry, place_of(number))?;
        Ok(true)
    }

    /// Appends a record and returns its place. `None` if there is no room.
    fn append(&self, mut records: &File, head: &RecordHead, bytes: &[u8]) -> io::Result<Option<u64>> {
        let length = (HEAD + bytes.len()) as u64;
        let _turn = self.appending.lock();
        if self.limit.is_some_and(|limit| records.metadata().map_or(0, |meta| meta.len()) + length > limit) {
            return Ok(None);
        }
        // With O_APPEND the kernel chooses the place and advances the position in one step. So processes that append at the same
        // time do not overwrite each other and need no lock.
        let written = records.write_vectored(&[IoSlice::new(&head.0), IoSlice::new(bytes)])?;
        if written as u64 != length {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // After an append the position is the end of the record.
        Ok(Some(records.stream_position()? - length))
    }

    fn files(&self) -> Option<&Files> {
        if let Some(files) = self.files.get() {
            return Some(files);
        }
        let found =
            self.takes_records().then(|| open(&PrivateFolder::open(&self.cache_folder, &self.below).ok()?))??;
        Some(self.files.get_or_init(|| found))
    }
}

impl Files {
    /// The place and the length of a record including its head, if the table has an entry.
    fn entry(&self, number: u64) -> Option<(u64, usize)> {
        let mut entry = [0; ENTRY as usize];
        self.table.read_exact_at(&mut entry, place_of(number)).ok()?;
        let [a, b, c, d, e, f, g, h, length @ .., _, _, _, _] = entry;
        let (offset, length) = (u64::from_le_bytes([a, b, c, d, e, f, g, h]), u32::from_le_bytes(length) as usize);
        (HEAD..=Shelf::MAX_RECORD_BYTES).contains(&length).then_some((offset, length))
    }
}

fn place_of(number: u64) -> u64 {
    // Saturates for forged numbers. Reading there finds no entry.
    number.saturating_mul(ENTRY).saturating_add(MAGIC.len() as u64)
}

/// The head of a record.
struct RecordHead([u8; HEAD]);

impl RecordHead {
    fn new(number: u64, stamp: u64, bytes: &[u8]) -> Self {
        Self::of([number, stamp, (HEAD + bytes.len()) as u64, xxh3_64(bytes)])
    }

    fn of(fields: [u64; 4]) -> Self {
        let fields = fields.map(u64::to_le_bytes);
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&xxh3_64(fields.as_flattened()).to_le_bytes());
        head[8..].copy_from_slice(fields.as_flattened());
        Self(head)
    }

    /// The checksum of the bytes, if this is the head of the given record.
    fn checksum_in(head: &[u8; HEAD], number: u64, stamp: u64, length: usize) -> Option<u64> {
        let checksum = u64::from_le_bytes(*head.last_chunk()?);
        (Self::of([number, stamp, length as u64, checksum]).0 == *head).then_some(checksum)
    }
}

/// Opens both files if they exist and belong to this user.
fn open(folder: &PrivateFolder) -> Option<Files> {
    let open = |name, access| {
        // A cache that cannot be written can still be read.
        let file = folder.open_file(name, access).or_else(|_| folder.open_file(name, Access::Read)).ok()?;
        is_ready(&file).then_some(file)
    };
    Some(Files { table: open(TABLE, Access::Write)?, records: open(RECORDS, Access::Append)? })
}

/// Opens both files. Creates missing ones, and replaces damaged files, links and pipes.
fn create(folder: &PrivateFolder) -> io::Result<Files> {
    let open = |name, access| {
        match folder.open_file(name, access) {
            Ok(file) if is_ready(&file) => return Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => folder.create_file(name, &MAGIC)?,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            _ => folder.replace(name, &MAGIC)?,
        }
        folder.open_file(name, access)
    };
    Ok(Files { table: open(TABLE, Access::Write)?, records: open(RECORDS, Access::Append)? })
}

fn is_ready(file: &File) -> bool {
    let mut magic = [0; MAGIC.len()];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == MAGIC
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shelf_in(folder: &Path, limit: Option<u64>) -> Shelf {
        Shelf::new(folder.to_owned().into(), PathBuf::from("shelf"), limit)
    }

    fn filled(folder: &Path) -> Shelf {
        let shelf = shelf_in(folder, None);
        for number in [0, 7, 3] {
            assert!(shelf.put(number, 100 + number, format!("record {number}").as_bytes()));
        }
        shelf
    }

    fn read(shelf: &Shelf, number: u64, stamp: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        shelf.get(number, stamp, &mut bytes, |_| Ok(())).unwrap().then_some(bytes)
    }

    #[test]
    fn what_was_put_is_there_for_every_process_and_of_its_stamp_only() {
        let folder = tempfile::tempdir().unwrap();
        let first = filled(folder.path());
        let second = shelf_in(folder.path(), None);
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
                let shelf = shelf_in(folder.path(), None);
                for number in [0, 3, 7] {
                    let found = read(&shelf, number, 100 + number);
                    assert!(found.is_none_or(|found| found == format!("record {number}").as_bytes()), "{name} {place}");
                }
            }
            fs::write(&path, &sound[..sound.len() / 2]).unwrap();
            assert_eq!(read(&shelf_in(folder.path(), None), 3, 103), None, "{name} cut short");
            fs::write(&path, &sound).unwrap();
        }
    }

    #[test]
    fn a_limit_is_kept_and_what_is_in_stays() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = shelf_in(folder.path(), Some(1000));
        let kept = (0..100).filter(|&number| shelf.put(number, 0, &[7; 100])).count();
        assert_eq!(kept, 7, "records of 140 bytes");
        assert!((0..7).all(|number| read(&shelf, number, 0) == Some(vec![7; 100])));
        assert!(fs::metadata(folder.path().join("shelf/records")).unwrap().len() <= 1000);
    }

    #[test]
    fn threads_and_processes_append_beside_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let shelves: Vec<Shelf> = (0..2).map(|_| shelf_in(folder.path(), None)).collect();
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
        let shelf = shelf_in(&folder.path().join("file/below"), None);
        assert!(!shelf.put(0, 0, b"x"));
        assert_eq!(read(&shelf, 0, 0), None);
    }

    #[test]
    fn a_damaged_table_takes_no_memory() {
        let folder = tempfile::tempdir().unwrap();
        filled(folder.path());
        let at = |name: &str| folder.path().join("shelf").join(name);
        let mut table = fs::read(at("table")).unwrap();
        for length in [HEAD as u32, 1 << 20, 1 << 30] {
            for (offset, sound) in [(MAGIC.len() as u64, true), (1 << 62, false), (u64::MAX, false)] {
                table[16..24].copy_from_slice(&offset.to_le_bytes());
                table[24..28].copy_from_slice(&length.to_le_bytes());
                fs::write(at("table"), &table).unwrap();
                // A hole makes the file as long as the table claims.
                let hole = File::options().write(true).open(at("records")).unwrap();
                hole.set_len(if sound { 2 << 30 } else { hole.metadata().unwrap().len() }).unwrap();
                let mut bytes = Vec::new();
                let found = shelf_in(folder.path(), None).get(0, 100, &mut bytes, |_| panic!("memory was asked for"));
                assert!(!found.unwrap() && bytes.capacity() == 0, "{offset} {length}");
            }
        }
    }

    #[test]
    fn memory_is_booked_before_it_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = filled(folder.path());
        let mut bytes = Vec::new();
        let refused = shelf.get(7, 107, &mut bytes, |len| Err(NoMemory::Exhausted { bytes: len as u64 }));
        assert_eq!((refused, bytes.capacity()), (Err(NoMemory::Exhausted { bytes: 8 }), 0));
    }

    #[test]
    fn a_lock_that_another_process_holds_stops_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = filled(folder.path());
        // Like a process that was stopped while appending, or another user who may read the file.
        let locked = ["table", "records"].map(|name| File::open(folder.path().join("shelf").join(name)).unwrap());
        for file in &locked {
            file.lock().unwrap();
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| sender.send(shelf.put(9, 0, b"not stopped")).unwrap());
            let kept = receiver.recv_timeout(std::time::Duration::from_mins(1));
            for file in &locked {
                file.unlock().unwrap();
            }
            assert_eq!(kept, Ok(true));
        });
    }

    #[test]
    fn links_and_pipes_in_place_of_the_files_are_replaced_and_not_followed() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("precious"), b"not ours").unwrap();
        fs::create_dir(at("shelf")).unwrap();
        std::os::unix::fs::symlink(at("precious"), at("shelf/records")).unwrap();
        mknodat(CWD, at("shelf/table"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let shelf = filled(folder.path());
        assert_eq!(read(&shelf, 7, 107), Some(b"record 7".to_vec()));
        assert_eq!(fs::read(at("precious")).unwrap(), b"not ours");
    }

    #[test]
    fn nobody_else_can_read_what_is_kept() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().unwrap();
        filled(folder.path());
        for (name, mode) in [("", 0o700), ("records", 0o600), ("table", 0o600)] {
            let meta = fs::metadata(folder.path().join("shelf").join(name)).unwrap();
            assert_eq!(meta.mode() & 0o777, mode, "{name:?}");
        }
    }
}
