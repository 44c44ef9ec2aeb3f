//! A store of objects in memory, so that targets need no disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use feedline_data::plan::Registry;
use feedline_data::store::{BufferSource, Names, Object, Store, StoreError};

/// The prefix of addresses in this store.
pub const ROOT: &str = "memory://fuzz";

/// Objects by name.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(pub BTreeMap<String, Arc<MemoryObject>>);

/// An object with a chosen modification time.
#[derive(Debug)]
pub struct MemoryObject {
    pub name: String,
    pub bytes: Vec<u8>,
    pub modified_nanoseconds: Option<i64>,
}

impl MemoryStore {
    /// Adds an object.
    pub fn with(mut self, name: &str, bytes: Vec<u8>, modified_nanoseconds: Option<i64>) -> Self {
        let object = MemoryObject { name: name.to_owned(), bytes, modified_nanoseconds };
        self.0.insert(name.to_owned(), Arc::new(object));
        self
    }

    /// A registry with this store below [`ROOT`].
    pub fn registry(self) -> Registry {
        let mut registry = Registry::core();
        registry.store("memory", move |_| Ok(Arc::new(self.clone())));
        registry
    }

    fn object(&self, name: &str) -> Result<&Arc<MemoryObject>, StoreError> {
        let missing = || StoreError::NotFound { path: self.address(name), source: std::io::ErrorKind::NotFound.into() };
        self.0.get(name).ok_or_else(missing)
    }
}

impl Store for MemoryStore {
    fn list(&self, accept: &(dyn Fn(&str) -> bool + Sync)) -> Result<Names, StoreError> {
        Ok(self.0.keys().map(String::as_str).filter(|name| accept(name)).collect())
    }

    fn read(&self, name: &str, room: &mut dyn BufferSource) -> Result<(), StoreError> {
        let object = self.object(name)?;
        room.room(object.bytes.len())?.copy_from_slice(&object.bytes);
        Ok(())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        Ok(Arc::clone(self.object(name)?) as Arc<dyn Object>)
    }

    fn address(&self, name: &str) -> String {
        format!("{ROOT}/{name}")
    }
}

impl Object for MemoryObject {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn address(&self) -> String {
        format!("{ROOT}/{}", self.name)
    }

    fn modified_nanoseconds(&self) -> Option<i64> {
        self.modified_nanoseconds
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), StoreError> {
        let range = offset..offset.saturating_add(target.len() as u64);
        let bytes = usize::try_from(offset).ok().and_then(|start| self.bytes.get(start..)?.get(..target.len()));
        let len = self.len();
        target.copy_from_slice(bytes.ok_or_else(|| StoreError::Truncated { path: self.address(), range, len })?);
        Ok(())
    }
}
