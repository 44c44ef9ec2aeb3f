//! A finished slab: the memory of a batch, with one owner.
//!
//! Always true: M4 of the crate doc. Dropping it returns the memory to its pool, unless it was retired.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use crate::pool::PoolInner;
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::{Allocation, SlabLayout};

/// The memory of a batch.
#[derive(Debug)]
pub struct Slab {
    /// `None` only during `drop`.
    memory: Option<Allocation>,
    pool: Arc<PoolInner>,
    /// Whether another process may still read the memory after the slab is dropped. Then it is not reused.
    is_retired: AtomicBool,
}

impl Slab {
    pub(crate) fn new(memory: Allocation, pool: Arc<PoolInner>) -> Self {
        Self { memory: Some(memory), pool, is_retired: AtomicBool::new(false) }
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

    /// The descriptor with which another process can map the slab, if its pool is shared.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.memory().descriptor()
    }

    /// Excludes the memory from reuse, because a process that has mapped it may read it for any length of time.
    pub fn retire(&self) {
        // Relaxed: only `drop` reads the flag, and the owner that drops the slab has synchronised with all other users (`Arc`).
        self.is_retired.store(true, Ordering::Relaxed);
    }

    fn memory(&self) -> &Allocation {
        self.memory.as_ref().expect("memory leaves a slab only in drop")
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let is_retired = self.is_retired.load(Ordering::Relaxed);
        if let Some(memory) = self.memory.take().filter(|_| !is_retired) {
            self.pool.put_back(memory);
        }
    }
}
