//! Reuses slabs of one layout.
//!
//! In: dropped slabs. Out: open slabs. Always true: at most `max_spare` unused allocations are kept. The pool does not limit the
//! number of open slabs and never waits for one: the engine's budget limits them. A slab is refused only if the system has no
//! memory.

use crate::sync::{Arc, Mutex};
use crate::{Allocation, OpenSlab, Sharing, SlabLayout};

/// Hands out slabs and takes their memory back.
#[derive(Clone, Debug)]
pub struct Pool(Arc<PoolInner>);

#[derive(Debug)]
pub(crate) struct PoolInner {
    pub(crate) layout: SlabLayout,
    sharing: Sharing,
    /// Unused allocations. `None` once nothing is reused any more.
    spare: Mutex<Option<Vec<Allocation>>>,
    max_spare: usize,
}

impl Pool {
    /// A pool on the heap that keeps at most `max_spare` unused allocations.
    pub fn new(layout: SlabLayout, max_spare: usize) -> Self {
        Self::with_sharing(layout, max_spare, Sharing::Private)
    }

    /// The same, with memory that other processes can map and read.
    pub fn shared(layout: SlabLayout, max_spare: usize) -> Self {
        Self::with_sharing(layout, max_spare, Sharing::Readers)
    }

    /// The same, with memory that others may use as `sharing` says.
    pub fn with_sharing(layout: SlabLayout, max_spare: usize, sharing: Sharing) -> Self {
        Self(Arc::new(PoolInner { layout, sharing, max_spare, spare: Mutex::new(Some(Vec::new())) }))
    }

    /// Opens a slab. Reused memory contains old bytes, so every slot that will be read must be written before the slab is sealed.
    ///
    /// `None` if the system has no memory left.
    pub fn open(&self) -> Option<OpenSlab> {
        let memory = self.0.take().or_else(|| self.0.allocate())?;
        Some(OpenSlab::new(memory, Arc::clone(&self.0)))
    }

    /// The layout of all its slabs.
    pub fn layout(&self) -> &SlabLayout {
        &self.0.layout
    }

    /// Bytes of unused allocations.
    pub fn spare_bytes(&self) -> usize {
        self.0.spare.lock().as_ref().map_or(0, Vec::len) * self.0.layout.total_bytes()
    }

    /// Frees unused allocations, and from now on each slab when it is dropped. Otherwise one slab that a user keeps would keep the
    /// unused memory of its whole pool.
    pub fn stop_reuse(&self) {
        let spare = self.0.spare.lock().take();
        // Freed without the lock.
        drop(spare);
    }
}

impl PoolInner {
    fn allocate(&self) -> Option<Allocation> {
        let bytes = self.layout.total_bytes();
        match self.sharing {
            Sharing::Private => Allocation::zeroed(bytes),
            Sharing::Readers => Allocation::shared(bytes, Sharing::Readers).ok(),
            Sharing::Writers => Allocation::writable(bytes),
        }
    }

    fn take(&self) -> Option<Allocation> {
        self.spare.lock().as_mut()?.pop()
    }

    /// Takes back the memory of a slab. Frees it if there is enough spare memory.
    pub(crate) fn put_back(&self, memory: Allocation) {
        let mut spare = self.spare.lock();
        if let Some(spare) = spare.as_mut().filter(|spare| spare.len() < self.max_spare) {
            spare.push(memory);
        }
        // Otherwise `memory` is freed after the lock is released: parameters are dropped after local variables.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn pool(slots: usize) -> Pool {
        Pool::new(SlabLayout::new(slots, &[16, 4]).unwrap(), 1)
    }

    #[test]
    fn threads_fill_disjoint_slots_and_the_sealed_slab_holds_all_of_them() {
        let open = pool(32).open().unwrap();
        thread::scope(|scope| {
            for first in (0..32).step_by(4) {
                let mut writer = open.claim(first..first + 4).unwrap();
                scope.spawn(move || {
                    for slot in writer.slots() {
                        for region in writer.slot_mut(slot) {
                            region.fill(slot as u8);
                        }
                    }
                });
            }
        });
        let slab = open.seal().unwrap();
        for slot in 0..32 {
            assert!(slab.region(0)[slot * 16..][..16].iter().all(|&byte| byte == slot as u8));
            assert!(slab.region(1)[slot * 4..][..4].iter().all(|&byte| byte == slot as u8));
        }
    }

    #[test]
    fn a_slot_is_claimed_once() {
        let open = pool(4).open().unwrap();
        let writer = open.claim(1..3).unwrap();
        assert!(open.claim(2..4).is_none());
        drop(writer);
        assert!(open.claim(1..2).is_none());
    }

    #[test]
    fn a_slab_with_a_writer_cannot_be_sealed() {
        let open = pool(4).open().unwrap();
        let writer = open.claim(0..1).unwrap();
        let open = open.seal().unwrap_err();
        drop(writer);
        assert!(open.seal().is_ok());
    }

    #[test]
    fn memory_is_reused_but_only_as_much_as_the_pool_keeps() {
        let pool = pool(4);
        let first = pool.open().unwrap().seal().unwrap();
        let second = pool.open().unwrap().seal().unwrap();
        let address = first.start();
        drop(first);
        drop(second);
        assert_eq!(pool.spare_bytes(), pool.layout().total_bytes());
        assert_eq!(pool.open().unwrap().seal().unwrap().start(), address);
    }

    #[test]
    fn a_pool_that_stops_keeps_no_memory_while_a_slab_is_used() {
        let pool = pool(4);
        let kept = pool.open().unwrap().seal().unwrap();
        drop(pool.open().unwrap().seal().unwrap());
        assert!(pool.spare_bytes() > 0);
        pool.stop_reuse();
        assert_eq!(pool.spare_bytes(), 0);
        drop(kept);
        assert_eq!(pool.spare_bytes(), 0);
        assert!(pool.open().is_some(), "slabs can still be opened");
    }
}
