//! The files of a folder below the root of a server, as a store.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use feedline_data::store::{
    BufferSource, FileObject, Names, Object, Store, StoreError, Version, escaped_path, unescaped,
};

use super::beneath::{Beneath, ResolveError};
use super::listing::{Listing, list};

/// A folder below the root of a server.
#[derive(Debug)]
pub(super) struct ConfinedStore {
    beneath: Arc<Beneath>,
    /// Below the root. Empty for the root itself.
    folder: PathBuf,
}

impl ConfinedStore {
    /// The files of the folder at `root`.
    pub(super) fn new(root: &Path) -> Result<Self, StoreError> {
        let unreadable = |source| StoreError::NotFound { path: root.display().to_string(), source };
        Ok(Self { beneath: Arc::new(Beneath::new(root).map_err(unreadable)?), folder: PathBuf::new() })
    }

    /// The files of a folder below it.
    pub(super) fn below(&self, folder: &str) -> Result<Self, StoreError> {
        check_name(folder)?;
        Ok(Self { beneath: Arc::clone(&self.beneath), folder: self.folder.join(unescaped(folder)) })
    }

    /// All files with their lengths and times. With `is_flat`, only those directly in the folder.
    pub(super) fn listing(&self, is_flat: bool) -> Result<Listing, StoreError> {
        list(&self.beneath, &self.folder, is_flat)
    }

    fn open_file(&self, name: &str) -> Result<FileObject, StoreError> {
        check_name(name)?;
        let opened = match self.beneath.open(&self.folder.join(unescaped(name))) {
            Err(ResolveError::Outside) => return Err(outside(name)),
            Err(ResolveError::Io(source)) => Err(source),
            Ok(file) => Ok(file),
        };
        FileObject::new(opened, name.to_owned(), self.address(name))
    }

    fn names(&self, is_flat: bool, accept: &dyn Fn(&str) -> bool) -> Result<Names, StoreError> {
        let Listing { files, folders, left_out } = self.listing(is_flat)?;
        // `accept` gets folders for information only.
        for folder in &folders {
            accept(folder);
        }
        if left_out > 0 {
            tracing::warn!(left_out, folder = %self.folder.display(), "left out links that lead out of the root");
        }
        Ok(files.iter().map(|(name, _)| name.as_str()).filter(|name| accept(name)).collect())
    }
}

/// Fails unless a name is relative and has no `..`.
pub(super) fn check_name(name: &str) -> Result<(), StoreError> {
    let stays = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if stays && !name.contains('\0') { Ok(()) } else { Err(outside(name)) }
}

fn outside(name: &str) -> StoreError {
    StoreError::Content {
        path: name.to_owned(),
        problem: "lies outside of the root that this server serves".to_owned(),
    }
}

impl Store for ConfinedStore {
    fn list(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError> {
        self.names(false, accept)
    }

    fn list_flat(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError> {
        self.names(true, accept)
    }

    fn read(&self, name: &str, room: &mut dyn BufferSource) -> Result<(), StoreError> {
        let object = self.open_file(name)?;
        let len = usize::try_from(object.len()).unwrap_or(usize::MAX);
        object.read_at(0, room.room(len)?)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        Ok(Arc::new(self.open_file(name)?))
    }

    fn address(&self, name: &str) -> String {
        escaped_path(&self.beneath.path.join(&self.folder).join(unescaped(name)))
    }

    fn version(&self, name: &str) -> Option<Version> {
        Some(self.open_file(name).ok()?.version())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;
    use std::os::unix::ffi::OsStringExt as _;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A root with links of all kinds, and a folder next to it.
    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("root/train/inner")).unwrap();
        fs::write(folder.path().join("secret"), "s").unwrap();
        fs::create_dir(folder.path().join("other")).unwrap();
        fs::write(folder.path().join("other/b"), "b").unwrap();
        let root = folder.path().join("root");
        fs::write(root.join("train/a"), "a").unwrap();
        fs::write(root.join("c"), "c").unwrap();
        symlink("../../../secret", root.join("train/inner/link")).unwrap();
        symlink(folder.path().join("other"), root.join("train/away")).unwrap();
        symlink("../c", root.join("train/within")).unwrap();
        symlink(root.join("c"), root.join("train/absolute")).unwrap();
        symlink("absolute", root.join("train/twice")).unwrap();
        folder
    }

    fn names(listing: &Listing) -> Vec<&str> {
        listing.files.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn names_and_links_that_lead_out_of_the_root_are_refused_and_not_listed() {
        let folder = tree();
        let store = ConfinedStore::new(&folder.path().join("root")).unwrap().below("train").unwrap();
        let listing = store.listing(false).unwrap();
        assert_eq!((names(&listing), listing.left_out), (vec!["a", "absolute", "twice", "within"], 2));
        for name in ["../../secret", "/etc/passwd", "inner/link", "away/b", "away", "a/../../../secret", "a\0b", "./a"]
        {
            let error = store.read(name, &mut Vec::new()).unwrap_err().to_string();
            assert!(error.contains("outside of the root that this server serves"), "{name:?}: {error}");
        }
        for name in ["within", "absolute", "twice"] {
            let mut bytes = Vec::new();
            store.read(name, &mut bytes).unwrap();
            assert_eq!(bytes, b"c");
        }
        assert!(store.below("..").is_err());
        assert!(matches!(store.read("gone", &mut Vec::new()), Err(StoreError::NotFound { .. })));
        assert!(matches!(store.read("inner", &mut Vec::new()), Err(StoreError::NotAFile { .. })));
    }

    #[test]
    fn what_lies_behind_a_link_out_of_the_root_is_not_looked_at() {
        let folder = tree();
        let (root, other) = (folder.path().join("root"), folder.path().join("other"));
        // A listing that went there would count these, or fail with an error that names them.
        std::os::unix::fs::symlink(&other, other.join("loop")).unwrap();
        let odd = std::ffi::OsStr::new("odd");
        fs::write(other.join(OsString::from_vec([odd.as_encoded_bytes(), &[0xff]].concat())), "").unwrap();
        let listing = ConfinedStore::new(&root).unwrap().listing(false).unwrap();
        assert_eq!(names(&listing), ["c", "train/a", "train/absolute", "train/twice", "train/within"]);
        assert_eq!(listing.left_out, 2);
    }

    #[test]
    fn links_that_lead_nowhere_or_in_circles_harm_no_other_entry() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "a").unwrap();
        symlink("nothing", folder.path().join("nowhere")).unwrap();
        symlink("circle", folder.path().join("circle")).unwrap();
        let store = ConfinedStore::new(folder.path()).unwrap();
        let listing = store.listing(false).unwrap();
        assert_eq!((names(&listing), listing.left_out), (vec!["a", "circle", "nowhere"], 0));
        assert!(listing.files[0].1.is_some() && listing.files[1].1.is_none());
        assert!(store.read("circle", &mut Vec::new()).is_err());
    }

    #[test]
    fn a_listing_has_the_lengths_and_times_of_files() {
        let folder = tree();
        let store = ConfinedStore::new(&folder.path().join("root")).unwrap();
        for (name, version) in store.listing(false).unwrap().files {
            assert_eq!(version, store.version(&name), "{name}");
        }
        assert_eq!(names(&store.listing(true).unwrap()), ["c"]);
    }

    #[test]
    fn a_folder_that_is_changed_into_a_link_while_it_is_read_never_leads_out() {
        let folder = tree();
        let root = folder.path().join("root");
        let (inside, link, name) = (root.join("real"), root.join("link"), root.join("swapped"));
        fs::create_dir(&inside).unwrap();
        fs::write(inside.join("b"), "inside").unwrap();
        symlink(folder.path().join("other"), &link).unwrap();
        let store = ConfinedStore::new(&root).unwrap();
        let has_ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !has_ended.load(std::sync::atomic::Ordering::Relaxed) {
                    for source in [&inside, &link] {
                        fs::rename(source, &name).unwrap();
                        fs::rename(&name, source).unwrap();
                    }
                }
            });
            for _ in 0..3000 {
                let mut bytes = Vec::new();
                if store.read("swapped/b", &mut bytes).is_ok() {
                    assert_eq!(bytes, b"inside");
                }
            }
            has_ended.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
