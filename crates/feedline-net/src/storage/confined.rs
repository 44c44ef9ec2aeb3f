//! Files below a root that nobody can leave: neither by `..` nor by symbolic links.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use feedline_core::store::{DiskStore, Names, Object, Room, Store, StoreError, Version, unescaped};

/// A folder below the root of a server.
#[derive(Debug)]
pub struct ConfinedStore {
    /// Without links in it.
    root: PathBuf,
    folder: PathBuf,
    files: DiskStore,
}

impl ConfinedStore {
    /// The files of `folder` below `root`, which has to be there.
    pub fn below(root: &Path, folder: &str) -> Result<Self, StoreError> {
        let unreadable = |source| StoreError::NotFound { path: root.display().to_string(), source };
        let root = fs::canonicalize(root).map_err(unreadable)?;
        check_name(folder)?;
        let folder = root.join(unescaped(folder));
        Ok(Self { files: DiskStore::new(&folder), folder, root })
    }

    /// An error if a name leads out of the root.
    fn check(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        let path = self.folder.join(unescaped(name));
        let read = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => StoreError::NotFound { path: name.to_owned(), source },
            _ => StoreError::Read { path: name.to_owned(), source },
        };
        let real = fs::canonicalize(&path).map_err(read)?;
        if real.starts_with(&self.root) { Ok(()) } else { Err(outside(name)) }
    }
}

/// Names are below the root as they are written: relative, without `..`.
pub(super) fn check_name(name: &str) -> Result<(), StoreError> {
    let stays = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if stays && !name.contains('\0') { Ok(()) } else { Err(outside(name)) }
}

fn outside(name: &str) -> StoreError {
    StoreError::Content { path: name.to_owned(), problem: "lies outside of what this server serves".to_owned() }
}

impl Store for ConfinedStore {
    fn list(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError> {
        let within = Within::new(&self.root);
        self.files.list(&|name| within.has(&self.folder.join(unescaped(name))) && accept(name))
    }

    fn list_flat(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError> {
        let within = Within::new(&self.root);
        self.files.list_flat(&|name| within.has(&self.folder.join(unescaped(name))) && accept(name))
    }

    fn read(&self, name: &str, room: &mut dyn Room) -> Result<(), StoreError> {
        self.check(name)?;
        self.files.read(name, room)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        self.check(name)?;
        self.files.open(name)
    }

    fn address(&self, name: &str) -> String {
        self.files.address(name)
    }

    fn version(&self, name: &str) -> Option<Version> {
        self.check(name).ok()?;
        self.files.version(name)
    }
}

/// Links are followed, as they are locally; those that lead out of the root are left out with all behind them.
struct Within<'a> {
    root: &'a Path,
    /// Whether folders lie in the root.
    folders: Mutex<HashMap<PathBuf, bool>>,
}

impl<'a> Within<'a> {
    fn new(root: &'a Path) -> Self {
        Self { root, folders: Mutex::default() }
    }

    fn has(&self, file: &Path) -> bool {
        let folder = file.parent().unwrap_or(self.root).to_owned();
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        let has_folder = *folders.entry(folder).or_insert_with_key(|folder| self.leads_to(folder));
        drop(folders);
        let is_link = || fs::symlink_metadata(file).is_ok_and(|meta| meta.is_symlink());
        has_folder && (!is_link() || self.leads_to(file))
    }

    fn leads_to(&self, path: &Path) -> bool {
        fs::canonicalize(path).is_ok_and(|real| real.starts_with(self.root))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("root/train/inner")).unwrap();
        fs::write(folder.path().join("secret"), "s").unwrap();
        fs::create_dir(folder.path().join("other")).unwrap();
        fs::write(folder.path().join("other/b"), "b").unwrap();
        let root = folder.path().join("root");
        fs::write(root.join("train/a"), "a").unwrap();
        fs::write(root.join("c"), "c").unwrap();
        std::os::unix::fs::symlink("../../../secret", root.join("train/inner/link")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("other"), root.join("train/away")).unwrap();
        std::os::unix::fs::symlink("../c", root.join("train/within")).unwrap();
        folder
    }

    #[test]
    fn names_and_links_that_lead_out_of_the_root_are_refused_and_not_listed() {
        let folder = tree();
        let root = folder.path().join("root");
        let store = ConfinedStore::below(&root, "train").unwrap();
        let names: Vec<String> = store.list(&|_| true).unwrap().iter().map(str::to_owned).collect();
        assert_eq!(names, ["a", "within"]);
        for name in ["../../secret", "/etc/passwd", "inner/link", "away/b", "a/../../../secret", "a\0b", "./a", ""] {
            let error = store.read(name, &mut Vec::new()).unwrap_err();
            assert!(!matches!(error, StoreError::NotFound { .. }) || name.is_empty(), "{name:?}: {error}");
        }
        let mut bytes = Vec::new();
        store.read("within", &mut bytes).unwrap();
        assert_eq!(bytes, b"c");
        assert!(ConfinedStore::below(&root, "..").is_err());
        assert!(matches!(store.read("gone", &mut bytes), Err(StoreError::NotFound { .. })));
    }
}
