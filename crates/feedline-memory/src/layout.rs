//! The place of each region and slot in a slab.
//!
//! In: the number of slots, and the bytes of one sample in each field. Out: offsets. Always true: M2 of the crate doc.

use std::ops::Range;

/// Regions start at multiples of this, so that every element type and SIMD load is aligned.
const REGION_ALIGNMENT: usize = 64;

/// The division of a slab into regions (one per field) and slots (one per sample).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlabLayout {
    slots: usize,
    regions: Vec<Region>,
    total_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Region {
    offset: usize,
    slot_bytes: usize,
}

impl SlabLayout {
    /// Lays out `slots` slots of `slot_bytes[r]` bytes in region `r`; `None` if that exceeds the address space.
    pub fn new(slots: usize, slot_bytes: &[usize]) -> Option<Self> {
        let mut offset: usize = 0;
        let mut regions = Vec::with_capacity(slot_bytes.len());
        for &slot_bytes in slot_bytes {
            regions.push(Region { offset, slot_bytes });
            let end = offset.checked_add(slots.checked_mul(slot_bytes)?)?;
            offset = end.checked_next_multiple_of(REGION_ALIGNMENT)?;
        }
        (offset < isize::MAX as usize).then_some(Self { slots, regions, total_bytes: offset })
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Number of regions.
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Bytes of the whole slab.
    pub fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    /// Bytes of one slot in region `region`.
    pub fn slot_bytes(&self, region: usize) -> usize {
        self.regions[region].slot_bytes
    }

    /// The bytes of region `region`.
    pub fn region_range(&self, region: usize) -> Range<usize> {
        let Region { offset, slot_bytes } = self.regions[region];
        offset..offset + self.slots * slot_bytes
    }

    /// The bytes of slot `slot` in region `region`.
    pub fn slot_range(&self, region: usize, slot: usize) -> Range<usize> {
        assert!(slot < self.slots, "slot {slot} of a slab of {} slots", self.slots);
        let Region { offset, slot_bytes } = self.regions[region];
        offset + slot * slot_bytes..offset + (slot + 1) * slot_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_disjoint_and_inside_the_slab() {
        let layout = SlabLayout::new(5, &[3, 0, 8, 100]).unwrap();
        let mut seen = vec![false; layout.total_bytes()];
        for region in 0..layout.regions() {
            for slot in 0..layout.slots() {
                for byte in layout.slot_range(region, slot) {
                    assert!(!std::mem::replace(&mut seen[byte], true), "byte {byte} lies in two slots");
                }
            }
        }
    }

    #[test]
    fn a_slab_beyond_the_address_space_is_refused() {
        assert_eq!(SlabLayout::new(usize::MAX, &[2]), None);
        assert_eq!(SlabLayout::new(1 << 40, &[1 << 40]), None);
    }
}
