//! Folders in the cache folder, which only their owner can enter.
//!
//! A [`PrivateFolder`] is an open descriptor. Files are opened relative to it, so nobody can replace the folder between the check
//! and the open.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fchmod, fstat, linkat, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::named::{explain_link, regular};

const FOLDER_MODE: Mode = Mode::RWXU;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Upper limit of unfinished files per name and process.
const MAX_PARTS: u32 = 1000;
/// Permission bits of group and others.
const GROUP_AND_OTHERS: Mode = Mode::RWXG.union(Mode::RWXO);

/// The user's cache folder, and whether its warning was given. Clones share that.
#[derive(Clone, Debug)]
pub struct CacheFolder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    has_warned: AtomicBool,
}

impl CacheFolder {
    /// Logs one warning, for all clones, that nothing can be saved here.
    pub fn warn(&self, error: &io::Error) {
        // `swap` lets exactly one thread log. Nothing else depends on the flag, so relaxed is enough.
        if !self.0.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                folder = %self.display(),
                %error,
                "the cache folder cannot be used, so nothing is saved for later runs; set FEEDLINE_CACHE to a folder that you own"
            );
        }
    }
}

impl From<PathBuf> for CacheFolder {
    fn from(path: PathBuf) -> Self {
        Self(Arc::new(Inner { path, has_warned: AtomicBool::new(false) }))
    }
}

impl PartialEq for CacheFolder {
    fn eq(&self, other: &Self) -> bool {
        self.0.path == other.0.path
    }
}

impl Eq for CacheFolder {}

impl Deref for CacheFolder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0.path
    }
}

/// The access mode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To read only.
    Read,
    /// To read and to write anywhere.
    Write,
    /// To read anywhere and to write at the end.
    Append,
}

/// A folder below the cache folder that belongs to this user and that nobody else can enter.
#[derive(Debug)]
pub struct PrivateFolder(OwnedFd);

impl PrivateFolder {
    /// Opens the folder `below` a cache folder.
    pub fn open(cache_folder: &Path, below: &Path) -> io::Result<Self> {
        let mut folder = open_base(cache_folder)?;
        for name in below {
            folder = open_folder(&folder, Path::new(name))?;
        }
        Ok(Self(folder))
    }

    /// Opens the folder `below` a cache folder. Creates missing folders.
    pub fn create(cache_folder: &Path, below: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(FOLDER_MODE.bits()).create(cache_folder)?;
        let mut folder = open_base(cache_folder)?;
        for name in below {
            // Another process may create the folder at the same moment. `open_folder` checks its owner in either case.
            match mkdirat(&folder, name, FOLDER_MODE) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            folder = open_folder(&folder, Path::new(name))?;
        }
        Ok(Self(folder))
    }

    /// Opens an existing regular file that belongs to this user.
    pub fn open_file(&self, name: &str, access: Access) -> io::Result<File> {
        let flags = match access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::RDWR,
            Access::Append => OFlags::RDWR | OFlags::APPEND,
        };
        // NONBLOCK: opening a pipe would otherwise wait for a writer.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&self.0, name, flags, Mode::empty()).map_err(|error| explain_link(error.into()))?;
        let file = regular(File::from(opened))?;
        // The checks use the open descriptor, so the file cannot be exchanged in between.
        make_private(&file, FILE_MODE)?;
        Ok(file)
    }

    /// Writes a file as a whole: readers see the old or the new content. A link is replaced, not followed.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        // An error here leaves the old file as it was. `rename` is atomic, so readers see one content or the other.
        let part = self.write_part(name, bytes)?;
        renameat(&self.0, &part, &self.0, name).map_err(|error| {
            self.remove(&part);
            error.into()
        })
    }

    /// Creates a file with this content, unless the name exists.
    pub fn create_file(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let part = self.write_part(name, bytes)?;
        // A link fails if the name exists, while a rename would replace the file of another process.
        match linkat(&self.0, &part, &self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::EXIST) => {
                self.remove(&part);
                Ok(())
            }
            // The file system has no hard links.
            Err(_) => Ok(renameat(&self.0, &part, &self.0, name)?),
        }
    }

    /// Writes a new file and returns its name.
    fn write_part(&self, name: &str, bytes: &[u8]) -> io::Result<String> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Another thread, or a process that was killed, may have used a name.
        let mut parts = (0..MAX_PARTS).map(|number| format!("{name}.{}-{number}.part", std::process::id()));
        let (part, mut file) = parts
            .find_map(|part| match openat(&self.0, &part, flags, FILE_MODE) {
                Err(Errno::EXIST) => None,
                opened => Some(opened.map(|file| (part, File::from(file)))),
            })
            .unwrap_or(Err(Errno::EXIST))?;
        file.write_all(bytes).inspect_err(|_| self.remove(&part))?;
        Ok(part)
    }

    fn remove(&self, part: &str) {
        // If this fails, a small file stays.
        unlinkat(&self.0, part, AtFlags::empty()).unwrap_or_default();
    }
}

/// Opens the cache folder itself. The user may have named a link, or a system folder such as `/tmp`.
fn open_base(path: &Path) -> io::Result<OwnedFd> {
    let folder = openat(CWD, path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let owner = fstat(&folder)?.st_uid;
    // A folder of root, such as `/tmp`, is allowed as the base. The folders below it must belong to the user.
    if owner == 0 { Ok(folder) } else { check_owner(owner).map(|()| folder) }
}

fn open_folder(parent: &OwnedFd, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let folder = openat(parent, name, flags, Mode::empty()).map_err(|error| explain_link(error.into()))?;
    make_private(&folder, FOLDER_MODE)?;
    Ok(folder)
}

fn check_owner(owner: u32) -> io::Result<()> {
    let user = geteuid().as_raw();
    if owner == user {
        return Ok(());
    }
    let text = format!("it belongs to user {owner}, but this process runs as user {user}");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Checks that a file belongs to this user, and removes permissions of others.
fn make_private(file: &impl std::os::fd::AsFd, mode: Mode) -> io::Result<()> {
    let found = fstat(file)?;
    check_owner(found.st_uid)?;
    if Mode::from_raw_mode(found.st_mode).intersects(GROUP_AND_OTHERS) {
        match fchmod(file, mode) {
            // On a read-only file system nobody can change it.
            Ok(()) | Err(Errno::ROFS) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn folders_and_files_are_for_their_owner_only_also_those_of_an_earlier_version() {
        let cache = tempfile::tempdir().unwrap();
        let base = cache.path().join("cache");
        let folder = PrivateFolder::create(&base, Path::new("seek/ab")).unwrap();
        folder.replace("table", b"x").unwrap();
        for (path, expected) in [("", 0o700), ("seek", 0o700), ("seek/ab", 0o700), ("seek/ab/table", 0o600)] {
            assert_eq!(mode(&base.join(path)), expected, "{path:?}");
        }
        fs::set_permissions(base.join("seek/ab"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(base.join("seek/ab/table"), fs::Permissions::from_mode(0o644)).unwrap();
        let folder = PrivateFolder::open(&base, Path::new("seek/ab")).unwrap();
        folder.open_file("table", Access::Read).unwrap();
        assert_eq!((mode(&base.join("seek/ab")), mode(&base.join("seek/ab/table"))), (0o700, 0o600));
    }

    #[test]
    fn links_are_neither_followed_nor_truncated() {
        let cache = tempfile::tempdir().unwrap();
        let target = cache.path().join("target");
        fs::write(&target, b"precious").unwrap();
        let folder = PrivateFolder::create(cache.path(), Path::new("seek")).unwrap();
        symlink(&target, cache.path().join("seek/table")).unwrap();
        for access in [Access::Read, Access::Write, Access::Append] {
            assert!(folder.open_file("table", access).is_err());
        }
        folder.replace("table", b"ours").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"precious");
        assert_eq!(fs::read(cache.path().join("seek/table")).unwrap(), b"ours");
        symlink(cache.path().join("seek"), cache.path().join("samples")).unwrap();
        assert!(PrivateFolder::create(cache.path(), Path::new("samples")).is_err(), "a link in place of a folder");
        let base = cache.path().join("base");
        symlink(cache.path(), &base).unwrap();
        assert!(PrivateFolder::open(&base, Path::new("seek")).is_ok(), "the user may name a link");
    }

    #[test]
    fn files_of_another_user_are_not_used() {
        let cache = tempfile::tempdir().unwrap();
        if chown(cache.path(), Some(12345), None).is_err() {
            return; // Only root can give files away.
        }
        assert!(PrivateFolder::create(cache.path(), Path::new("seek")).unwrap_err().to_string().contains("12345"));
        chown(cache.path(), Some(0), None).unwrap();
        let folder = PrivateFolder::create(cache.path(), Path::new("seek")).unwrap();
        folder.replace("table", b"x").unwrap();
        chown(cache.path().join("seek/table"), Some(12345), None).unwrap();
        assert!(folder.open_file("table", Access::Read).is_err());
        chown(cache.path().join("seek"), Some(12345), None).unwrap();
        assert!(PrivateFolder::open(cache.path(), Path::new("seek")).is_err());
    }
}
