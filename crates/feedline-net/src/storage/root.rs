//! The root of a server: a folder on disk, or in a bucket.
//!
//! In: a folder below the root. Out: its files as a store. Always true: no name leads out of the root.

use std::path::Path;
use std::sync::Arc;

use feedline_data::store::{BufferSource, Names, Object, Peer, Store, StoreError, Version};

use super::confined::ConfinedStore;
use super::confined::check_name;
use super::listing::Listing;
use crate::object::{Peers, RETRY_TIME};

/// The folder that a server serves.
#[derive(Clone, Debug)]
pub struct Root {
    place: RootStore,
    /// All of it.
    whole: Arc<dyn Store>,
}

#[derive(Clone, Debug)]
enum RootStore {
    Disk(Arc<ConfinedStore>),
    Bucket { url: String, peers: Arc<Peers> },
}

impl Root {
    /// A path, or a URL of an object store.
    pub fn open(path_or_url: &str) -> Result<Self, StoreError> {
        if !path_or_url.contains("://") {
            return Self::folder(Path::new(path_or_url));
        }
        let peers = Arc::new(Peers::new(RETRY_TIME));
        let url = path_or_url.trim_end_matches('/').to_owned();
        let whole = Arc::new(NamedStore(peers.open(&url)?));
        Ok(Self { place: RootStore::Bucket { url, peers }, whole })
    }

    /// A folder on disk.
    pub fn folder(path: &Path) -> Result<Self, StoreError> {
        let whole = Arc::new(ConfinedStore::new(path)?);
        Ok(Self { place: RootStore::Disk(Arc::clone(&whole)), whole })
    }

    /// All of it.
    pub fn whole(&self) -> &dyn Store {
        &*self.whole
    }

    /// A folder below it. With an empty name, the root itself.
    pub fn below(&self, folder: &str) -> Result<Arc<dyn Store>, StoreError> {
        match &self.place {
            _ if folder.is_empty() => Ok(Arc::clone(&self.whole)),
            RootStore::Disk(whole) => Ok(Arc::new(whole.below(folder)?)),
            RootStore::Bucket { url, peers } => {
                check_name(folder)?;
                Ok(Arc::new(NamedStore(peers.open(&format!("{url}/{folder}"))?)))
            }
        }
    }
}

impl Root {
    /// The files of a folder. With `is_flat`, only those directly in it.
    pub fn listing(&self, folder: &str, is_flat: bool) -> Result<Listing, StoreError> {
        match &self.place {
            RootStore::Disk(whole) => whole.below(folder)?.listing(is_flat),
            RootStore::Bucket { .. } => {
                let store = self.below(folder)?;
                let names = if is_flat { store.list_flat(&|_| true)? } else { store.list(&|_| true)? };
                let files = names.iter().map(|name| (name.to_owned(), store.version(name))).collect();
                Ok(Listing { files, ..Listing::default() })
            }
        }
    }
}

/// A store that checks names before it uses them.
#[derive(Debug)]
struct NamedStore(Arc<dyn Store>);

#[deny(clippy::missing_trait_methods)]
impl Store for NamedStore {
    fn list(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError> {
        self.0.list(accept)
    }

    fn list_flat(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError> {
        self.0.list_flat(accept)
    }

    fn read(&self, name: &str, room: &mut dyn BufferSource) -> Result<(), StoreError> {
        check_name(name)?;
        self.0.read(name, room)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        check_name(name)?;
        self.0.open(name)
    }

    fn address(&self, name: &str) -> String {
        self.0.address(name)
    }

    fn version(&self, name: &str) -> Option<Version> {
        self.0.version(name)
    }

    fn peer(&self) -> Option<Arc<dyn Peer>> {
        self.0.peer()
    }

    fn is_remote(&self) -> bool {
        self.0.is_remote()
    }

    fn is_near(&self) -> bool {
        self.0.is_near()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_out_of_a_bucket_are_refused_before_it_is_asked() {
        let root = Root::open("http://127.0.0.1:1/folder/").unwrap();
        for name in ["../secret", "a/../../secret", "/etc/passwd", "./a", "a\0"] {
            let errors = [root.whole().open(name).err(), root.whole().read(name, &mut Vec::new()).err()];
            for error in errors.into_iter().chain([root.below(name).err()]) {
                assert!(error.unwrap().to_string().contains("outside of the root that this server serves"), "{name}");
            }
        }
    }

    #[test]
    fn a_root_is_a_folder_that_is_there_or_a_url_that_is_known() {
        assert!(matches!(Root::open("/no/such/folder"), Err(StoreError::NotFound { .. })));
        assert!(Root::open("ftp://host/folder").unwrap_err().to_string().contains("no URL of an object store"));
    }
}
