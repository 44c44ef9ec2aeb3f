//! One shard and its index.
//!
//! Of the indexes next to the shard and in the cache folder, the one that fits best is used. If none fits, the shard is listed. The
//! new index is saved in the cache folder, or kept in memory if that is not possible. A shard that is with a peer is opened once,
//! and its index is copied (`copied.rs`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use feedline_memory::Mutex;
use xxhash_rust::xxh3::xxh3_128;

use super::copied;
use super::index::{ENDING, Freshness, Index, IndexHead};
use super::listing::list;
use super::memory::MemoryObject;
use super::pattern::FoundShard;
use crate::private_files::{Access, PrivateFolder};
use crate::store::{DiskStore, Object, Store, StoreError};

/// A shard.
#[derive(Debug)]
pub(super) struct Shard {
    found: FoundShard,
    /// Its length and modification time when the source was opened.
    bytes: u64,
    modified_nanoseconds: Option<i64>,
    /// The index in use. `replace` changes it.
    index: Mutex<Located>,
    /// Whether the index was compared with headers spread over the shard.
    is_checked: AtomicBool,
    /// The open object, if opening it again would need a request to a peer.
    remote: Option<Arc<dyn Object>>,
}

/// An index, and where it is stored.
#[derive(Clone, Debug)]
pub(super) struct Located {
    pub place: Place,
    pub head: Arc<IndexHead>,
}

/// Where an index is stored.
#[derive(Clone, Debug)]
pub(super) enum Place {
    NextToShard,
    Cache,
    Memory(Arc<dyn Object>),
}

/// How the index was found when a shard was opened for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// An existing index was used.
    Indexed,
    /// It had no index and was listed.
    Listed,
    /// Its index was stale or damaged, and it was listed.
    Replaced,
}

/// A shard and its index, open for reading.
#[derive(Debug)]
pub(super) struct OpenShard {
    pub object: Arc<dyn Object>,
    pub index: Index,
}

/// The folder for indexes that are not stored next to their shards.
#[derive(Clone, Debug)]
pub(super) struct IndexCache {
    cache_folder: PathBuf,
}

impl IndexCache {
    /// Its name in the cache folder.
    const FOLDER: &str = "shards";

    /// A folder below the user's cache folder. It is created with the first index.
    pub(super) fn new(cache_folder: &Path) -> Self {
        Self { cache_folder: cache_folder.to_owned() }
    }

    fn name(address: &str) -> String {
        format!("{:032x}{ENDING}", xxh3_128(address.as_bytes()))
    }

    fn open(&self, address: &str) -> Result<Arc<dyn Object>, StoreError> {
        let name = Self::name(address);
        let path = self.cache_folder.join(Self::FOLDER).join(&name);
        let folder = PrivateFolder::open(&self.cache_folder, Path::new(Self::FOLDER));
        DiskStore::opened(&path, folder.and_then(|folder| folder.open_file(&name, Access::Read)))
    }

    fn write(&self, address: &str, bytes: &[u8]) -> io::Result<()> {
        PrivateFolder::create(&self.cache_folder, Path::new(Self::FOLDER))?.replace(&Self::name(address), bytes)
    }
}

impl Shard {
    /// Opens a shard for the first time. Finds or builds its index.
    pub(super) fn open(found: FoundShard, cache: Option<&IndexCache>) -> Result<(Self, Opened), StoreError> {
        let object = found.store.open(&found.name)?;
        let (bytes, modified_nanoseconds) = (object.len(), object.modified_nanoseconds());
        if found.store.is_remote() {
            let (located, opened) = copied::locate(&found, &*object, cache)?;
            // `locate` returns only an index that is exact, was compared with the shard, or was just built.
            let (index, is_checked) = (Mutex::new(located), AtomicBool::new(true));
            let remote = Some(object);
            return Ok((Self { found, bytes, modified_nanoseconds, index, is_checked, remote }, opened));
        }
        // Compare the index next to the shard with the cached one. An exact index ends the search.
        let mut best: Option<(Freshness, Located)> = None;
        let mut has_index = false;
        for place in [Some(Place::NextToShard), cache.map(|_| Place::Cache)].into_iter().flatten() {
            let Ok(index) = place.open(&found, cache) else { continue };
            has_index = true;
            let Ok(Some(head)) = IndexHead::read(&*index) else { continue };
            // An index that cannot be compared counts as stale.
            let freshness = head.freshness(&*object).unwrap_or(Freshness::Stale);
            if best.as_ref().map_or(Freshness::Stale, |(best, _)| *best) < freshness {
                best = Some((freshness, Located { place, head: Arc::new(head) }));
            }
            if freshness == Freshness::Exact {
                break;
            }
        }
        let (located, is_checked, opened) = if let Some((freshness, located)) = best {
            // An index that is only likely to fit is compared with the headers later: in `reopen`, when a sample of the shard is
            // first needed.
            (located, freshness == Freshness::Exact, Opened::Indexed)
        } else {
            let opened = if has_index { Opened::Replaced } else { Opened::Listed };
            (Located::from_listing(&*object, cache)?, true, opened)
        };
        let (index, is_checked) = (Mutex::new(located), AtomicBool::new(is_checked));
        Ok((Self { found, bytes, modified_nanoseconds, index, is_checked, remote: None }, opened))
    }

    /// The head of its index.
    pub(super) fn head(&self) -> Arc<IndexHead> {
        Arc::clone(&self.index.lock().head)
    }

    /// Its path or address.
    pub(super) fn address(&self) -> String {
        self.found.store.address(&self.found.name)
    }

    /// Its length when it was opened.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its length and time when it was opened.
    pub(super) fn version(&self) -> [u8; 16] {
        let modified = self.modified_nanoseconds.unwrap_or_default().cast_unsigned();
        let mut version = [0; 16];
        version.as_chunks_mut().0.copy_from_slice(&[self.bytes.to_le_bytes(), modified.to_le_bytes()]);
        version
    }

    /// The store that has it.
    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.found.store
    }

    /// Whether it is with a peer.
    pub(super) fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// Opens the shard again. Builds the index again if it no longer fits.
    pub(super) fn reopen(&self, cache: Option<&IndexCache>) -> Result<OpenShard, StoreError> {
        let object = self.object()?;
        // Cloned, so that the lock is not held while files are opened and read.
        let Located { place, head } = self.index.lock().clone();
        // The index file was removed since the source was opened.
        let Ok(file) = place.open(&self.found, cache) else {
            let Some(remote) = &self.remote else { return self.rebuild(cache) };
            return self.replace(copied::copy(&self.found, &**remote, cache)?.0, object, cache);
        };
        let index = Index { object: file, head };
        // Relaxed: if two threads compare at the same time, both get the same answer.
        let is_unmodified = object.modified_nanoseconds() == self.modified_nanoseconds;
        if !(is_unmodified && self.is_checked.load(Ordering::Relaxed)) {
            if !index.fits(&*object).unwrap_or(false) {
                return self.rebuild(cache);
            }
            self.is_checked.store(true, Ordering::Relaxed);
        }
        Ok(OpenShard { object, index })
    }

    /// Opens the shard. Fails if its length has changed.
    fn object(&self) -> Result<Arc<dyn Object>, StoreError> {
        if let Some(object) = &self.remote {
            return Ok(Arc::clone(object));
        }
        let object = self.found.store.open(&self.found.name)?;
        if object.len() == self.bytes {
            return Ok(object);
        }
        Err(self.changed(&format!("it has {} bytes, and had {}", object.len(), self.bytes)))
    }

    /// Lists the shard again, because its index turned out to be damaged or stale.
    pub(super) fn rebuild(&self, cache: Option<&IndexCache>) -> Result<OpenShard, StoreError> {
        let object = self.object()?;
        let located = Located::from_listing(&*object, cache)?;
        self.replace(located, object, cache)
    }

    /// Uses another index from now on. Fails if it has other samples.
    fn replace(
        &self,
        located: Located,
        object: Arc<dyn Object>,
        cache: Option<&IndexCache>,
    ) -> Result<OpenShard, StoreError> {
        let before = self.head();
        // The source has numbered the samples by the old index. With other samples, the same number would mean another sample.
        if (located.head.samples, located.head.identity) != (before.samples, before.identity) {
            let (now, then) = (located.head.samples, before.samples);
            return Err(self.changed(&format!(
                "its keys, fields or labels differ from its index ({now} samples now, {then} in the index)"
            )));
        }
        tracing::info!(shard = self.address(), "rebuilt an index that was missing, stale or damaged");
        let index = Index { object: located.place.open(&self.found, cache)?, head: Arc::clone(&located.head) };
        // Threads that rebuild at the same time store equal indexes, so the order of these stores does not matter.
        *self.index.lock() = located;
        self.is_checked.store(true, Ordering::Relaxed);
        Ok(OpenShard { object, index })
    }

    fn changed(&self, how: &str) -> StoreError {
        let problem = format!("has changed since the source was opened: {how}; open the source again");
        StoreError::Content { path: self.address(), problem }
    }
}

impl Place {
    /// Opens the index at this place.
    pub(super) fn open(&self, found: &FoundShard, cache: Option<&IndexCache>) -> Result<Arc<dyn Object>, StoreError> {
        let FoundShard { store, name } = found;
        match (self, cache) {
            (Self::Memory(index), _) => Ok(Arc::clone(index)),
            (Self::Cache, Some(cache)) => cache.open(&store.address(name)),
            // `NextToShard`. `Cache` without a cache folder does not occur: the folder is the same in every call.
            _ => store.open(&format!("{name}{ENDING}")),
        }
    }
}

impl Located {
    /// Lists a shard and saves its index.
    pub(super) fn from_listing(shard: &dyn Object, cache: Option<&IndexCache>) -> Result<Self, StoreError> {
        Self::saved(shard, list(shard)?, cache)
    }

    /// Saves the index of a shard in the cache folder, or keeps it in memory if that is not possible.
    pub(super) fn saved(shard: &dyn Object, bytes: Vec<u8>, cache: Option<&IndexCache>) -> Result<Self, StoreError> {
        let address = shard.address();
        let written = cache.map(|cache| cache.write(&address, &bytes));
        if let Some(Err(error)) = &written {
            tracing::debug!(shard = address, %error, "index could not be saved in the cache folder");
        }
        let in_memory: Arc<dyn Object> = Arc::new(MemoryObject::new(format!("{address}{ENDING}"), bytes));
        let problem =
            || StoreError::Content { path: address.clone(), problem: "has an index that cannot be read".to_owned() };
        let head = Arc::new(IndexHead::read(&*in_memory)?.ok_or_else(problem)?);
        let place = if matches!(written, Some(Ok(()))) { Place::Cache } else { Place::Memory(in_memory) };
        Ok(Self { place, head })
    }
}
