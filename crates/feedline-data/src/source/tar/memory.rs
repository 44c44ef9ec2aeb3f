//! Bytes in memory with the interface of an object. Used for indexes that cannot be saved, and for labels, which are read from an
//! index.

use crate::store::{Object, StoreError};

/// Bytes in memory with the interface of an object.
#[derive(Debug)]
pub(crate) struct MemoryObject {
    address: String,
    bytes: Vec<u8>,
}

impl MemoryObject {
    /// An object with these bytes. Error messages call it `address`.
    pub(super) fn new(address: String, bytes: Vec<u8>) -> Self {
        Self { address, bytes }
    }

    /// All bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Object for MemoryObject {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn is_in_memory(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), StoreError> {
        let from = usize::try_from(offset).ok().and_then(|start| self.bytes.get(start..));
        let range = offset..offset.saturating_add(target.len() as u64);
        let truncated = || StoreError::Truncated { path: self.address(), range, len: self.len() };
        target.copy_from_slice(from.and_then(|bytes| bytes.get(..target.len())).ok_or_else(truncated)?);
        Ok(())
    }
}
