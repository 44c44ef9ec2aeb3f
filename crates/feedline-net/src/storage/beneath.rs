//! A root folder that no name can escape, neither by `..` nor by symbolic links.
//!
//! Names are resolved from the descriptor of the root, never from a path that could change meanwhile. If everything stays below the
//! root, the kernel does it (`openat2` with `RESOLVE_BENEATH`); otherwise this code does, step by step. Links are followed like
//! local ones, including absolute links back into the root. What is behind a link that leads out is neither opened nor examined.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Upper limit of links in one name. More links are a loop.
const MAX_LINKS: usize = 40;

/// A root folder that no name can escape.
#[derive(Debug)]
pub(super) struct Beneath {
    root: OwnedFd,
    /// Its path without links, and as it was named. Absolute links are compared with both.
    pub path: PathBuf,
    named: PathBuf,
}

/// Why a name could not be opened.
#[derive(Debug)]
pub(super) enum ResolveError {
    /// It leads out of the root.
    Outside,
    Io(io::Error),
}

impl From<Errno> for ResolveError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

impl Beneath {
    /// The folder at `path`, which must exist.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let (named, path) = (std::path::absolute(path)?, fs::canonicalize(path)?);
        let root = rustix::fs::open(&path, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty())?;
        Ok(Self { root, path, named })
    }

    /// Opens the file of a name for reading. Does not wait for a pipe.
    pub(super) fn open(&self, name: &Path) -> Result<File, ResolveError> {
        // NONBLOCK: opening a FIFO without a writer would block the worker.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let name = if name.as_os_str().is_empty() { Path::new(".") } else { name };
        loop {
            match rustix::fs::openat2(&self.root, name, flags, Mode::empty(), resolve) {
                Ok(file) => return Ok(file.into()),
                // Something was renamed meanwhile, so the kernel asks to try again.
                Err(Errno::INTR | Errno::AGAIN) => {}
                // The name may lead out, or back into the root by an absolute link; or the kernel is too old.
                Err(Errno::XDEV | Errno::LOOP | Errno::NOSYS | Errno::PERM) => {
                    return Ok(self.walk(name, flags)?.into());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Resolves a name step by step. Each step opens one entry of an open folder, and follows links explicitly.
    fn walk(&self, name: &Path, flags: OFlags) -> Result<OwnedFd, ResolveError> {
        let folder_flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // The open folders on the way. ".." means the previous one, whatever was moved meanwhile.
        let mut folders: Vec<OwnedFd> = Vec::new();
        let mut steps: VecDeque<OsString> = steps_of(name).collect();
        let mut links = 0;
        while let Some(step) = steps.pop_front() {
            if step == ".." {
                // There is nothing above the root.
                folders.pop().ok_or(ResolveError::Outside)?;
                continue;
            }
            let folder = folders.last().unwrap_or(&self.root);
            // O_PATH and NOFOLLOW: the descriptor of the entry itself. A link that is swapped in afterwards is not followed.
            let entry = rustix::fs::openat(folder, step.as_os_str(), folder_flags, Mode::empty())?;
            let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&entry)?.st_mode);
            if kind == rustix::fs::FileType::Symlink {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let target = rustix::fs::readlinkat(&entry, "", Vec::new())?;
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                let below = if target.is_absolute() {
                    // An absolute link starts again at the root, if it points below it.
                    folders.clear();
                    let below = target.strip_prefix(&self.path).or_else(|_| target.strip_prefix(&self.named));
                    below.map_err(|_| ResolveError::Outside)?
                } else {
                    &target
                };
                // The steps of the link come before the remaining steps of the name, in their order.
                for step in steps_of(below).collect::<Vec<_>>().into_iter().rev() {
                    steps.push_front(step);
                }
            } else if steps.is_empty() {
                return Ok(rustix::fs::openat(folder, step.as_os_str(), flags | OFlags::NOFOLLOW, Mode::empty())?);
            } else {
                folders.push(entry);
            }
        }
        let folder = folders.last().unwrap_or(&self.root);
        Ok(rustix::fs::openat(folder, ".", flags, Mode::empty())?)
    }
}

fn steps_of(path: &Path) -> impl Iterator<Item = OsString> {
    let step = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(step)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn step_by_step_a_name_leads_where_the_kernel_leads_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("train/inner")).unwrap();
        fs::write(folder.path().join("secret"), "s").unwrap();
        fs::write(root.join("a"), "a").unwrap();
        symlink("../a", root.join("train/within")).unwrap();
        symlink(root.join("a"), root.join("train/absolute")).unwrap();
        symlink("../train/inner/../absolute", root.join("train/twice")).unwrap();
        symlink("../../secret", root.join("train/out")).unwrap();
        symlink(folder.path(), root.join("train/above")).unwrap();
        let beneath = Beneath::new(&root).unwrap();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        for name in ["a", "train", "train/within", "train/absolute", "train/twice", "train/inner", "train/.."] {
            assert!(beneath.walk(Path::new(name), flags).is_ok(), "{name}");
            assert!(beneath.open(Path::new(name)).is_ok(), "{name}");
        }
        for name in ["train/out", "train/above/secret", "../secret", "train/../../secret", "train/above/root/a"] {
            assert!(matches!(beneath.walk(Path::new(name), flags), Err(ResolveError::Outside)), "{name}");
            assert!(matches!(beneath.open(Path::new(name)), Err(ResolveError::Outside)), "{name}");
        }
    }
}
