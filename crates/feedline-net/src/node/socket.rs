//! The socket of a node in the file system.
//!
//! Always true: one node at a time listens at a path. A file lock decides; it ends with its process, so the socket of a killed node
//! is no obstacle. The socket is in a folder that only its owner may enter. Both sides check the other's user before they send
//! anything. A folder that another user has created is refused.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A socket that this process listens on. Removed when dropped.
#[derive(Debug)]
pub struct NodeSocket {
    path: PathBuf,
    lock_path: PathBuf,
    /// The folder, if this process created it.
    made_folder: Option<PathBuf>,
    listener: UnixListener,
    /// Locked as long as this exists.
    _lock: File,
}

/// Why a node cannot listen at a path, or be reached there.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum SocketError {
    #[error("another node listens at {path:?}; stop it, or give another --socket")]
    Taken { path: PathBuf },
    #[error("the socket {path:?} belongs to user {owner}, not to user {user}; it is not used")]
    Owner { path: PathBuf, owner: u32, user: u32 },
    #[error(
        "the folder {folder:?} {problem}; the socket of a node must be in a folder of user {user} that no one else may enter: create \
         one with mkdir -m 700, and name a socket in it by FEEDLINE_NODE"
    )]
    Folder { folder: PathBuf, problem: String, user: u32 },
    #[error("{path:?} exists and is not a socket")]
    NoSocket { path: PathBuf },
    #[error("no node listens at {path:?}")]
    Nobody { path: PathBuf, source: io::Error },
    #[error("cannot listen at {path:?}")]
    Listen { path: PathBuf, source: io::Error },
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Fails if a file belongs to another user.
fn check_owner(path: &Path) -> Result<(), SocketError> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    let (owner, user) = (found.uid(), user());
    if owner == user { Ok(()) } else { Err(SocketError::Owner { path: path.to_owned(), owner, user }) }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Fails if another user could write to a folder, or could have created it.
fn check_folder(folder: &Path) -> Result<(), SocketError> {
    let user = user();
    let wrong = |problem: String| SocketError::Folder { folder: folder.to_owned(), problem, user };
    let found = match fs::symlink_metadata(folder) {
        Ok(found) => found,
        Err(source) => return Err(SocketError::Nobody { path: folder.to_owned(), source }),
    };
    match found.mode() & 0o7777 {
        _ if !found.is_dir() => Err(wrong("is a link or no folder".to_owned())),
        _ if found.uid() != user => Err(wrong(format!("belongs to user {}", found.uid()))),
        // Any permission for group or others. A process that can create files here could replace the socket.
        mode if mode & 0o077 != 0 => Err(wrong(format!("has mode {mode:04o}, not 0700"))),
        _ => Ok(()),
    }
}

/// Fails if the process on the other side belongs to another user, whatever the file system says.
fn check_peer(path: &Path, stream: &UnixStream) -> Result<(), SocketError> {
    let failed = |source: rustix::io::Errno| SocketError::Nobody { path: path.to_owned(), source: source.into() };
    let (owner, user) = (rustix::net::sockopt::socket_peercred(stream).map_err(failed)?.uid.as_raw(), user());
    if owner == user { Ok(()) } else { Err(SocketError::Owner { path: path.to_owned(), owner, user }) }
}

impl NodeSocket {
    /// Listens at `path`. Creates its folder if necessary, for this user only.
    pub fn take(path: &Path) -> Result<Self, SocketError> {
        let failed = |source| SocketError::Listen { path: path.to_owned(), source };
        let folder = folder_of(path);
        // Only a folder that this process creates is removed at the end.
        let made_folder = (!folder.exists()).then(|| folder.to_owned());
        check_owner(path)?;
        let lock_path = beside(path, "lock");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(O_NOFOLLOW);
        // Retries when another node that ends has just removed the folder or the lock file.
        let lock = loop {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
            match check_folder(folder) {
                // A node that ends removes its folder.
                Err(SocketError::Nobody { .. }) => continue,
                checked => checked?,
            }
            let lock = match options.open(&lock_path) {
                // A node that ends removes its folder.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(failed)?,
            };
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(SocketError::Taken { path: path.to_owned() }),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
            // Its owner may have removed it since it was opened.
            let (locked, there) = (lock.metadata().map_err(failed)?, fs::symlink_metadata(&lock_path));
            // The same inode: the file that is locked is the one that others would open now.
            if there.is_ok_and(|there| there.ino() == locked.ino()) {
                break lock;
            }
        };
        // The lock was free, so its creator is gone.
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(SocketError::NoSocket { path: path.to_owned() });
            }
            Ok(_) => fs::remove_file(path).map_err(failed)?,
            Err(_) => {}
        }
        // It gets its final name when its permissions exclude other users.
        // Bound under another name and renamed when its permissions are set: no moment in which others could connect.
        let unfinished = beside(path, "new");
        fs::remove_file(&unfinished).or_else(unless_missing).map_err(failed)?;
        let listener = UnixListener::bind(&unfinished).map_err(failed)?;
        fs::set_permissions(&unfinished, Permissions::from_mode(0o600)).map_err(failed)?;
        fs::rename(&unfinished, path).map_err(failed)?;
        Ok(Self { path: path.to_owned(), lock_path, made_folder, listener, _lock: lock })
    }

    /// Connects to this user's node at `path`.
    pub fn connect(path: &Path) -> Result<UnixStream, SocketError> {
        match check_folder(folder_of(path)) {
            Err(SocketError::Nobody { source, .. }) => {
                return Err(SocketError::Nobody { path: path.to_owned(), source });
            }
            checked => checked?,
        }
        check_owner(path)?;
        let stream =
            UnixStream::connect(path).map_err(|source| SocketError::Nobody { path: path.to_owned(), source })?;
        check_peer(path, &stream)?;
        Ok(stream)
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

impl Drop for NodeSocket {
    fn drop(&mut self) {
        for path in [&self.path, &self.lock_path] {
            if let Err(error) = fs::remove_file(path) {
                tracing::debug!(%error, path = %path.display(), "could not remove a file of the node");
            }
        }
        if let Some(folder) = &self.made_folder {
            // Fails if the folder is not empty.
            fs::remove_dir(folder).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private_folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        folder
    }

    #[test]
    fn one_node_listens_at_a_place_and_leaves_nothing_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/node.sock");
        let place = NodeSocket::take(&path).unwrap();
        assert!(matches!(NodeSocket::take(&path), Err(SocketError::Taken { .. })));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        NodeSocket::connect(&path).unwrap();
        drop(place);
        assert!(!path.parent().unwrap().exists());
        assert!(matches!(NodeSocket::connect(&path), Err(SocketError::Nobody { .. })));
    }

    #[test]
    fn a_socket_that_nobody_listens_at_any_more_is_taken_over_and_a_file_is_not() {
        let folder = private_folder();
        let path = folder.path().join("node.sock");
        drop(UnixListener::bind(&path).unwrap());
        drop(NodeSocket::take(&path).unwrap());
        fs::write(&path, b"something else").unwrap();
        assert!(matches!(NodeSocket::take(&path), Err(SocketError::NoSocket { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"something else");
    }

    /// Checks that listening and connecting in a folder fail.
    #[track_caller]
    fn check_refused(folder: &Path, words: &str) {
        let path = folder.join("node.sock");
        for refused in [NodeSocket::take(&path).map(drop), NodeSocket::connect(&path).map(drop)] {
            let text = refused.unwrap_err().to_string();
            assert!(text.contains(words) && text.contains("mkdir -m 700"), "{text}");
        }
        assert_eq!(fs::read_dir(folder).unwrap().count(), 0, "nothing is put there");
    }

    #[test]
    fn a_folder_that_others_may_enter_or_that_is_a_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for mode in [0o755, 0o710, 0o777, 0o1777, 0o701] {
            fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
            check_refused(folder.path(), "not 0700");
        }
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("link")).unwrap();
        check_refused(&folder.path().join("link"), "is a link");
    }

    #[test]
    fn a_folder_that_another_user_has_made_first_is_refused() {
        // Only root can give folders away.
        if user() == 0 {
            let folder = private_folder();
            std::os::unix::fs::chown(folder.path(), Some(12_345), None).unwrap();
            check_refused(folder.path(), "belongs to user 12345");
        }
    }

    #[test]
    fn what_belongs_to_another_user_is_refused() {
        // Only root can give files away.
        if user() != 0 {
            return;
        }
        let folder = private_folder();
        let path = folder.path().join("node.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
        for refused in [NodeSocket::connect(&path).map(drop), NodeSocket::take(&path).map(drop)] {
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("user 12345"), "{text}");
        }
    }
}
