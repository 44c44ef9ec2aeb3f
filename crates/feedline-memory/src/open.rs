//! A slab whose batch is being prepared: many threads write disjoint slots.
//!
//! Always true: M3 and M4 of the crate doc. What is *not* done here: counting filled slots, which the engine does.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use crate::pool::PoolInner;
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::{Allocation, Slab, SlabLayout};

/// A slab whose slots can be claimed for writing.
#[derive(Clone, Debug)]
pub struct OpenSlab(Arc<Open>);

#[derive(Debug)]
struct Open {
    memory: Option<Allocation>,
    claimed: Box<[AtomicBool]>,
    pool: Arc<PoolInner>,
}

impl OpenSlab {
    pub(crate) fn new(memory: Allocation, pool: Arc<PoolInner>) -> Self {
        let claimed = (0..pool.layout.slots()).map(|_| AtomicBool::new(false)).collect();
        Self(Arc::new(Open { memory: Some(memory), claimed, pool }))
    }

    /// The layout of the slab.
    pub fn layout(&self) -> &SlabLayout {
        &self.0.pool.layout
    }

    /// Claims `slots` for one writer. `None` if any of them was claimed before.
    pub fn claim(&self, slots: Range<usize>) -> Option<SlotWriter> {
        for slot in slots.clone() {
            if self.0.claimed[slot].swap(true, Ordering::AcqRel) {
                return None;
            }
        }
        Some(SlotWriter { open: Arc::clone(&self.0), slots })
    }

    /// Seals the slab. Returns it unchanged if a writer or another reference still exists.
    pub fn seal(self) -> Result<Slab, Self> {
        match Arc::try_unwrap(self.0) {
            Ok(mut open) => {
                let memory = open.memory.take().expect("memory leaves an open slab only here or in drop");
                Ok(Slab::new(memory, Arc::clone(&open.pool)))
            }
            Err(open) => Err(Self(open)),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.put_back(memory);
        }
    }
}

/// The only writer of the slots it claimed.
#[derive(Debug)]
pub struct SlotWriter {
    open: Arc<Open>,
    slots: Range<usize>,
}

/// A slab that another process can map, to write to the slots of a writer.
#[derive(Clone, Copy, Debug)]
pub struct SharedSlab<'a> {
    /// Different for each allocation. A reused slab keeps its number.
    pub number: u64,
    /// For the other process to map.
    pub descriptor: BorrowedFd<'a>,
    /// Where the slots are.
    pub layout: &'a SlabLayout,
}

impl SlotWriter {
    /// The slab of the slots, if other processes can map it. Another process may write to the slots of this writer until the caller
    /// uses or drops the writer (M6).
    pub fn shared_slab(&mut self) -> Option<SharedSlab<'_>> {
        let memory = self.open.memory.as_ref().expect("memory stays while a writer exists: M4");
        let descriptor = memory.descriptor()?;
        Some(SharedSlab { number: memory.number(), descriptor, layout: &self.open.pool.layout })
    }

    /// The slots this writer has claimed.
    #[cfg(test)]
    pub(crate) fn slots(&self) -> Range<usize> {
        self.slots.clone()
    }

    /// The bytes of consecutive slots in one region, slot after slot.
    pub fn slots_mut(&mut self, region: usize, slots: Range<usize>) -> &mut [u8] {
        let (first, last) = (slots.start, slots.end.saturating_sub(1));
        let is_claimed = self.slots.contains(&first) && self.slots.contains(&last) && first <= last;
        assert!(is_claimed, "slots {slots:?} were not claimed by this writer ({:?})", self.slots);
        let memory = self.open.memory.as_ref().expect("memory stays while a writer exists: M4");
        let layout = &self.open.pool.layout;
        // The slots of a region lie side by side.
        let range = layout.slot_range(region, first).start..layout.slot_range(region, last).end;
        // SAFETY: M2 keeps the range inside the allocation.
        let start = unsafe { memory.start().add(range.start) };
        // SAFETY: M2 and M3: no other writer reaches these slots; `&mut self` keeps this writer from giving them out twice.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), range.len()) }
    }

    /// The bytes of slot `slot`, one slice per region in the order of the layout.
    pub fn slot_mut(&mut self, slot: usize) -> Vec<&mut [u8]> {
        assert!(self.slots.contains(&slot), "slot {slot} was not claimed by this writer ({:?})", self.slots);
        let memory = self.open.memory.as_ref().expect("memory stays while a writer exists: M4");
        let layout = &self.open.pool.layout;
        (0..layout.regions())
            .map(|region| {
                let range = layout.slot_range(region, slot);
                // SAFETY: M2 keeps the range inside the allocation.
                let start = unsafe { memory.start().add(range.start) };
                // SAFETY: M2 and M3: the slices of different regions are disjoint and no other writer reaches this slot;
                // `&mut self` keeps this writer from giving them out twice.
                unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), range.len()) }
            })
            .collect()
    }
}
