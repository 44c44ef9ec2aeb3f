//! The socket of a node in the file system.
//!
//! Always true: one node listens at a place at a time, told by a lock that ends with its process, so a socket that a killed
//! node left behind is no obstacle; the socket can be used by its owner alone, and jobs use none of anybody else's.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A place that this process listens at; given up when dropped.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    lock_path: PathBuf,
    /// The folder, if it was not there before.
    made_folder: Option<PathBuf>,
    listener: UnixListener,
    /// Held as long as this.
    _lock: File,
}

/// Why nobody can listen at a place, or be reached there.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum PlaceError {
    #[error("another node listens at {path:?}; stop it, or give another --socket")]
    Taken { path: PathBuf },
    #[error("the socket {path:?} belongs to user {owner}, not to user {user}; it is not used")]
    Owner { path: PathBuf, owner: u32, user: u32 },
    #[error("{path:?} is there, and is no socket")]
    NoSocket { path: PathBuf },
    #[error("no node listens at {path:?}")]
    Nobody { path: PathBuf, source: io::Error },
    #[error("cannot listen at {path:?}")]
    Listen { path: PathBuf, source: io::Error },
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// An error if something belongs to somebody else.
fn check_owner(path: &Path) -> Result<(), PlaceError> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    let (owner, user) = (found.uid(), user());
    if owner == user { Ok(()) } else { Err(PlaceError::Owner { path: path.to_owned(), owner, user }) }
}

impl Place {
    /// Begins to listen at `path`; its folder is made if need be, for this user alone.
    pub fn take(path: &Path) -> Result<Self, PlaceError> {
        let failed = |source| PlaceError::Listen { path: path.to_owned(), source };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let made_folder = (!folder.exists()).then(|| folder.to_owned());
        check_owner(path)?;
        let lock_path = beside(path, "lock");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(O_NOFOLLOW);
        let lock = loop {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
            let lock = match options.open(&lock_path) {
                // A node that ends takes its folder with it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(failed)?,
            };
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(PlaceError::Taken { path: path.to_owned() }),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
            // Its owner may have removed it since it was opened.
            let (locked, there) = (lock.metadata().map_err(failed)?, fs::symlink_metadata(&lock_path));
            if there.is_ok_and(|there| there.ino() == locked.ino()) {
                break lock;
            }
        };
        // Whoever made it is gone, since the lock was free.
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(PlaceError::NoSocket { path: path.to_owned() });
            }
            Ok(_) => fs::remove_file(path).map_err(failed)?,
            Err(_) => {}
        }
        // It gets its name once nobody else can use it.
        let unfinished = beside(path, "new");
        fs::remove_file(&unfinished).or_else(unless_missing).map_err(failed)?;
        let listener = UnixListener::bind(&unfinished).map_err(failed)?;
        fs::set_permissions(&unfinished, Permissions::from_mode(0o600)).map_err(failed)?;
        fs::rename(&unfinished, path).map_err(failed)?;
        Ok(Self { path: path.to_owned(), lock_path, made_folder, listener, _lock: lock })
    }

    /// Connects to the node that listens at `path`.
    pub fn connect(path: &Path) -> Result<UnixStream, PlaceError> {
        check_owner(path)?;
        UnixStream::connect(path).map_err(|source| PlaceError::Nobody { path: path.to_owned(), source })
    }

    /// The socket.
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Symbolic links are not followed.
const O_NOFOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

fn unless_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

impl Drop for Place {
    fn drop(&mut self) {
        for path in [&self.path, &self.lock_path] {
            if let Err(error) = fs::remove_file(path) {
                tracing::debug!(%error, path = %path.display(), "a file of the node is left");
            }
        }
        if let Some(folder) = &self.made_folder {
            // Not if somebody has put something into it.
            fs::remove_dir(folder).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_listens_at_a_place_and_leaves_nothing_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/node.sock");
        let place = Place::take(&path).unwrap();
        assert!(matches!(Place::take(&path), Err(PlaceError::Taken { .. })));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        Place::connect(&path).unwrap();
        drop(place);
        assert!(!path.parent().unwrap().exists());
        assert!(matches!(Place::connect(&path), Err(PlaceError::Nobody { .. })));
    }

    #[test]
    fn a_socket_that_nobody_listens_at_any_more_is_taken_over_and_a_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.sock");
        drop(UnixListener::bind(&path).unwrap());
        drop(Place::take(&path).unwrap());
        fs::write(&path, b"something else").unwrap();
        assert!(matches!(Place::take(&path), Err(PlaceError::NoSocket { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"something else");
    }

    #[test]
    fn what_belongs_to_another_user_is_refused() {
        // Only root can give files away.
        if user() != 0 {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
        for refused in [Place::connect(&path).map(drop), Place::take(&path).map(drop)] {
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("user 12345"), "{text}");
        }
    }
}
