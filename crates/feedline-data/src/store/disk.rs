//! Files below a folder.
//!
//! Reads with `pread`. Lists folders with several threads. Leaves out hidden files and folders (".name").

use std::fs::{File, Metadata, OpenOptions, read_dir};
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt, MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::escaped::{escaped, escaped_path, unescaped};
use super::names::NamesBuilder;
use super::walk::{MAX_DEPTH, WALK_THREADS, WalkFolder, walk};
use super::{BufferSource, Names, Object, Store, StoreError, Version};

/// Files below a root folder.
#[derive(Debug)]
pub struct DiskStore {
    root: PathBuf,
}

impl DiskStore {
    /// Files below a path. A relative path is resolved now, because the current folder may change later.
    pub fn below(path: &str) -> Result<Self, StoreError> {
        let real = unescaped(path);
        // `absolute` rejects an empty path, which means the current folder here.
        let absolute = if path.is_empty() { std::env::current_dir() } else { std::path::absolute(&real) };
        Ok(Self::new(absolute.map_err(|source| read_error(escaped_path(Path::new(&real)), source))?))
    }

    /// Files below `root`, which is used as it is.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(unescaped(name))
    }

    /// Wraps a file that was opened elsewhere.
    pub(crate) fn opened(path: &Path, opened: io::Result<File>) -> Result<Arc<dyn Object>, StoreError> {
        let address = escaped_path(path);
        Ok(Arc::new(FileObject::new(opened, address.clone(), address)?))
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    // O_NONBLOCK avoids waiting for the writer of a pipe. It has no effect on regular files.
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Checks that an opened file is a regular one. Returns it with its metadata. Errors call it `name`.
fn checked(opened: io::Result<File>, name: &dyn Fn() -> String) -> Result<(File, Metadata), StoreError> {
    let file = opened.map_err(|source| read_error(name(), source))?;
    let meta = file.metadata().map_err(|source| read_error(name(), source))?;
    if !meta.is_file() {
        let what = if meta.is_dir() { "a folder" } else { "a pipe or device" };
        return Err(StoreError::NotAFile { path: name(), what });
    }
    Ok((file, meta))
}

impl Store for DiskStore {
    fn list(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError> {
        let parts = walk(WALK_THREADS, |folder, found| list_folder(&self.root, accept, folder, found))?;
        Ok(Names::sorted(&parts))
    }

    fn list_flat(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError> {
        let mut found = NamesBuilder::default();
        list_folder(&self.root, accept, &WalkFolder::default(), &mut found)?;
        Ok(Names::sorted(&[found]))
    }

    fn read(&self, name: &str, room: &mut dyn BufferSource) -> Result<(), StoreError> {
        let path = self.path(name);
        let name = || escaped_path(&path);
        let (file, meta) = checked(open_file(&path), &name)?;
        // The length is that of the open file. If another file takes its name meanwhile, the two are not mixed.
        let target = room.room(meta.len() as usize)?;
        read_exact(&file, &name, 0, target)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        let path = self.path(name);
        Self::opened(&path, open_file(&path))
    }

    fn address(&self, name: &str) -> String {
        escaped_path(&self.path(name))
    }

    fn version(&self, name: &str) -> Option<Version> {
        let meta = std::fs::metadata(self.path(name)).ok().filter(Metadata::is_file)?;
        Some(Version::from(&meta))
    }
}

/// An open file.
#[derive(Debug)]
pub struct FileObject {
    file: File,
    name: String,
    address: String,
    version: Version,
}

impl FileObject {
    /// Wraps a file, which must be a regular one. Errors of reading call it `name`; [`Object::address`] returns `address`.
    pub fn new(opened: io::Result<File>, name: String, address: String) -> Result<Self, StoreError> {
        let (file, meta) = checked(opened, &|| name.clone())?;
        Ok(Self { file, name, address, version: Version::from(&meta) })
    }

    /// Size and modification time, by which a change is noticed.
    pub fn version(&self) -> Version {
        self.version
    }
}

impl Object for FileObject {
    fn len(&self) -> u64 {
        self.version.len
    }

    fn modified_nanoseconds(&self) -> Option<i64> {
        self.version.modified_nanoseconds
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), StoreError> {
        read_exact(&self.file, &|| self.name.clone(), offset, target)
    }

    fn will_need(&self, range: Range<u64>) -> bool {
        let Some(len) = NonZeroU64::new(range.end.saturating_sub(range.start)) else { return false };
        // Ranges are read as a whole, so its two ends say whether it is in the page cache.
        if is_cached(&self.file, range.start) && is_cached(&self.file, range.end - 1) {
            return false;
        }
        // Only a hint: if the file system refuses it, the range is read when it is needed.
        fadvise(&self.file, range.start, Some(len), Advice::WillNeed).is_ok()
    }
}

/// Whether a byte of a file is in the page cache, as far as the file system says.
fn is_cached(file: &File, offset: u64) -> bool {
    let mut byte = [0];
    let read = preadv2(file, &mut [IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT);
    // Other errors mean that the file system does not know.
    read != Err(Errno::AGAIN)
}

impl From<&Metadata> for Version {
    fn from(meta: &Metadata) -> Self {
        let nanoseconds = meta.mtime().checked_mul(1_000_000_000).and_then(|all| all.checked_add(meta.mtime_nsec()));
        Self { len: meta.len(), modified_nanoseconds: nanoseconds }
    }
}

fn read_exact(file: &File, name: &dyn Fn() -> String, offset: u64, target: &mut [u8]) -> Result<(), StoreError> {
    // `pread` has no shared position, so threads read one file at the same time.
    file.read_exact_at(target, offset).map_err(|source| match source.kind() {
        io::ErrorKind::UnexpectedEof => StoreError::Truncated {
            path: name(),
            range: offset..offset.saturating_add(target.len() as u64),
            len: file.metadata().map(|meta| meta.len()).unwrap_or_default(),
        },
        _ => read_error(name(), source),
    })
}

fn read_error(path: String, source: io::Error) -> StoreError {
    match source.kind() {
        io::ErrorKind::NotFound => StoreError::NotFound { path, source },
        _ => StoreError::Read { path, source },
    }
}

/// Lists one folder of a tree: adds the files that `accept` takes, and returns its folders.
fn list_folder(
    root: &Path,
    accept: &(dyn Fn(&str) -> bool + Sync),
    folder: &WalkFolder,
    found: &mut NamesBuilder,
) -> Result<Vec<WalkFolder>, StoreError> {
    let path = root.join(unescaped(&folder.name));
    if folder.depth > MAX_DEPTH {
        return Err(StoreError::TooDeep { path: escaped_path(&path), limit: MAX_DEPTH });
    }
    let mut folders = Vec::new();
    let failed = |source| read_error(escaped_path(&path), source);
    for entry in read_dir(&path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let name = escaped(name.as_bytes());
        if name.starts_with('.') {
            continue;
        }
        let full = folder.name_of(&name);
        let kind = entry.file_type().map_err(failed)?;
        // A broken link counts as a file, so that reading it returns an error with its name.
        let is_folder = kind.is_dir() || (kind.is_symlink() && entry.path().is_dir());
        if is_folder {
            if folder.name.is_empty() {
                // Only for its side effect: `FolderSource` learns of empty folders this way.
                accept(&format!("{full}/"));
            }
            folders.push(folder.below(full));
        } else if accept(&full) {
            found.push(&full);
        }
    }
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn tree(files: &[&str]) -> (tempfile::TempDir, DiskStore) {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        let store = DiskStore::new(folder.path());
        (folder, store)
    }

    #[test]
    fn listing_is_sorted_complete_and_leaves_hidden_files_out() {
        let (folder, store) = tree(&["b/x.jpg", "a/y/z.jpg", "c.jpg", ".hidden.jpg", "d/.git/q.jpg", "a/no.txt"]);
        std::os::unix::fs::symlink(folder.path().join("b"), folder.path().join("link")).unwrap();
        let names = store.list(&|name| !name.ends_with("txt")).unwrap();
        assert!(names.iter().eq(["a/y/z.jpg", "b/x.jpg", "c.jpg", "link/x.jpg"]));
    }

    #[test]
    fn a_flat_listing_stays_in_the_root() {
        let (_folder, store) = tree(&["b/x.tar", "c.tar", "a.tar", ".hidden.tar", "no.txt"]);
        assert!(store.list_flat(&|name| name.ends_with("tar")).unwrap().iter().eq(["a.tar", "c.tar"]));
    }

    #[test]
    fn a_link_that_leads_back_ends_with_an_error() {
        let (folder, store) = tree(&["a/x.jpg"]);
        std::os::unix::fs::symlink(folder.path(), folder.path().join("a/loop")).unwrap();
        let error = store.list(&|_| true).unwrap_err().to_string();
        assert!(error.contains("deep") || error.contains("cannot read"), "{error}");
    }

    #[test]
    fn a_file_cut_short_after_opening_is_an_error_with_the_numbers() {
        let (folder, store) = tree(&["x"]);
        fs::write(folder.path().join("x"), [7; 100]).unwrap();
        let object = store.open("x").unwrap();
        fs::write(folder.path().join("x"), [7; 10]).unwrap();
        let error = object.read_at(50, &mut [0; 20]).unwrap_err().to_string();
        assert!(error.contains("ends at byte 10") && error.contains("50..70"), "{error}");
    }

    #[test]
    fn a_cold_range_is_read_ahead_once_and_a_warm_one_is_left_alone() {
        // On the disk of the build, because a temporary folder may be in memory.
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("x");
        fs::write(&path, vec![7; 1 << 20]).unwrap();
        let object = DiskStore::new(folder.path()).open("x").unwrap();
        assert!(!object.will_need(0..1 << 20), "it was just written");
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        if is_cached(&file, 0) {
            return; // This file system keeps its pages, or cannot say.
        }
        assert!(object.will_need(0..1 << 20));
        let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
        while !(is_cached(&file, 0) && is_cached(&file, (1 << 20) - 1)) {
            assert!(std::time::Instant::now() < deadline, "nothing was read");
            std::thread::yield_now();
        }
        assert!(!object.will_need(0..1 << 20));
        assert!(!object.will_need(5..5), "an empty range");
    }

    #[test]
    fn missing_files_and_folders_are_named() {
        let (_folder, store) = tree(&["x/y"]);
        assert!(store.read("nothing", &mut Vec::new()).unwrap_err().to_string().contains("nothing"));
        assert!(store.read("x", &mut Vec::new()).unwrap_err().to_string().contains("a folder"));
        assert!(DiskStore::new("/no/such/folder").list(&|_| true).unwrap_err().to_string().contains("no such"));
    }
}
