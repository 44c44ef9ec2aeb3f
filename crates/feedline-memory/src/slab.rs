//! A finished slab: the memory of a batch, owned by whoever holds it.
//!
//! Always true: M4 of the crate doc. Dropping it returns the memory to its pool.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use crate::pool::PoolInner;
use crate::sync::Arc;
use crate::{Allocation, SlabLayout};

/// The memory of a batch.
#[derive(Debug)]
pub struct Slab {
    memory: Option<Allocation>,
    pool: Arc<PoolInner>,
}

impl Slab {
    pub(crate) fn new(memory: Allocation, pool: Arc<PoolInner>) -> Self {
        Self { memory: Some(memory), pool }
    }

    /// The layout of the slab.
    pub fn layout(&self) -> &SlabLayout {
        &self.pool.layout
    }

    /// The bytes of one region: all slots of one field.
    pub fn region(&self, region: usize) -> &[u8] {
        &self.memory().bytes()[self.pool.layout.region_range(region)]
    }

    /// The address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.memory().start()
    }

    /// By which another process can map the slab, if its pool is shared.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.memory().descriptor()
    }

    fn memory(&self) -> &Allocation {
        self.memory.as_ref().expect("memory leaves a slab only in drop")
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.put_back(memory);
        }
    }
}
