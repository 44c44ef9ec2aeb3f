//! Lists the files below a folder of the root, with their lengths and times.
//!
//! Several threads list folders, because they mostly wait for the file system. Hidden files and folders (".name") are left out, as
//! in a local listing.
//!
//! Always true: a link that leads out of the root is not followed. It is counted and left out, and does not affect other entries.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use feedline_data::store::{
    MAX_DEPTH, StoreError, Version, WALK_THREADS, WalkFolder, escaped, escaped_path, unescaped, walk,
};
use rustix::fs::{AtFlags, Dir, FileType, Stat};

use super::beneath::{Beneath, ResolveError};

/// The content of a folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Names below the folder, sorted by bytes. A broken link has no version, so that reading it returns an error with its name.
    pub files: Vec<(String, Option<Version>)>,
    /// Folders directly in the folder, as `name/`, sorted. An empty one may be a class.
    pub folders: Vec<String>,
    /// Number of links that lead out of the root.
    pub left_out: u64,
}

impl Listing {
    /// Approximate memory in bytes.
    pub fn bytes(&self) -> u64 {
        let names = self.files.iter().map(|(name, _)| name).chain(&self.folders);
        names.map(|name| (name.len() + size_of::<(String, Option<Version>)>()) as u64).sum()
    }

    /// Files and folders, sorted by bytes. Folders have no version.
    pub(crate) fn into_entries(self) -> Vec<(String, Option<Version>)> {
        let mut entries = self.files;
        entries.extend(self.folders.into_iter().map(|folder| (folder, None)));
        entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        entries
    }
}

/// Lists `folder` below a root.
pub(super) fn list(beneath: &Beneath, folder: &Path, is_flat: bool) -> Result<Listing, StoreError> {
    let walker = FolderLister { beneath, folder, is_flat };
    // A flat listing is one folder, so more threads would have nothing to do.
    let threads = if is_flat { 1 } else { WALK_THREADS };
    let parts = walk(threads, |folder, found: &mut Listing| walker.list_folder(folder, found))?;
    let mut all = Listing::default();
    for part in parts {
        all.files.extend(part.files);
        all.folders.extend(part.folders);
        all.left_out += part.left_out;
    }
    all.files.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    all.folders.sort_unstable();
    Ok(all)
}

/// Lists single folders below a root.
struct FolderLister<'a> {
    beneath: &'a Beneath,
    folder: &'a Path,
    is_flat: bool,
}

/// An entry of a folder.
enum FolderEntry {
    File(Option<Version>),
    Folder,
    Outside,
}

impl FolderLister<'_> {
    fn list_folder(&self, folder: &WalkFolder, found: &mut Listing) -> Result<Vec<WalkFolder>, StoreError> {
        if folder.depth > MAX_DEPTH {
            return Err(StoreError::TooDeep { path: folder.name.clone(), limit: MAX_DEPTH });
        }
        let opened = match self.beneath.open(&self.folder.join(unescaped(&folder.name))) {
            Ok(opened) => opened,
            // A link that was changed since its folder was listed.
            Err(ResolveError::Outside) => {
                found.left_out += 1;
                return Ok(Vec::new());
            }
            Err(ResolveError::Io(source)) => return Err(self.read_error(&folder.name, source)),
        };
        let mut folders = Vec::new();
        let entries = Dir::read_from(&opened).map_err(|error| self.read_error(&folder.name, error.into()))?;
        for entry in entries {
            let entry = entry.map_err(|error| self.read_error(&folder.name, error.into()))?;
            let name = entry.file_name().to_bytes();
            if name.starts_with(b".") {
                continue;
            }
            let text = escaped(name);
            let full = folder.name_of(&text);
            match self.examine(&opened, name, &full) {
                FolderEntry::File(version) => found.files.push((full, version)),
                FolderEntry::Folder => {
                    // Only folders directly in the listed one: a source uses their names as labels.
                    if folder.name.is_empty() {
                        found.folders.push(format!("{full}/"));
                    }
                    if !self.is_flat {
                        folders.push(folder.below(full));
                    }
                }
                FolderEntry::Outside => found.left_out += 1,
            }
        }
        Ok(folders)
    }

    /// Examines an entry. One that cannot be examined counts as a file, as in a local listing.
    fn examine(&self, folder: &File, name: &[u8], full: &str) -> FolderEntry {
        let of_link = || match self.beneath.open(&self.folder.join(unescaped(full))) {
            Err(ResolveError::Outside) => FolderEntry::Outside,
            Err(ResolveError::Io(_)) => FolderEntry::File(None),
            Ok(file) => match file.metadata() {
                Ok(meta) if meta.is_dir() => FolderEntry::Folder,
                Ok(meta) if meta.is_file() => FolderEntry::File(Some(Version::from(&meta))),
                _ => FolderEntry::File(None),
            },
        };
        // One `stat` per file, relative to the open folder: no path is resolved again.
        let Ok(stat) = rustix::fs::statat(folder, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) else {
            return FolderEntry::File(None);
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => FolderEntry::Folder,
            FileType::Symlink => of_link(),
            FileType::RegularFile => FolderEntry::File(Some(version_of_stat(&stat))),
            _ => FolderEntry::File(None),
        }
    }

    fn read_error(&self, folder: &str, source: io::Error) -> StoreError {
        let path = escaped_path(&self.folder.join(unescaped(folder)));
        match source.kind() {
            io::ErrorKind::NotFound => StoreError::NotFound { path, source },
            _ => StoreError::Read { path, source },
        }
    }
}

fn version_of_stat(stat: &Stat) -> Version {
    // Nanoseconds since 1970 in an i64 end in the year 2262. A later time counts as unknown.
    let nanoseconds = stat.st_mtime.checked_mul(1_000_000_000);
    let nanoseconds = nanoseconds.and_then(|all| all.checked_add(stat.st_mtime_nsec));
    Version { len: u64::try_from(stat.st_size).unwrap_or_default(), modified_nanoseconds: nanoseconds }
}
