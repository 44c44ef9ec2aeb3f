//! The memory of batches in all interleavings: a slot has one writer at a time, and a sealed slab is completely written.
//!
//! Loom cannot track the raw memory of a slab. So a loom cell stands for each slot, and is accessed by the owner of the slot. Loom
//! reports concurrent accesses, and accesses without a happens-before relation.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use feedline_loom::{OpenSlab, Pool, SlabLayout};
use loom::cell::Cell;
use loom::sync::Arc;
use loom::thread;

const SLOTS: usize = 2;

/// One cell for each slot of a slab.
struct Cells([Cell<u32>; SLOTS]);

impl Cells {
    fn new() -> Arc<Self> {
        Arc::new(Self([Cell::new(0), Cell::new(0)]))
    }

    fn add(&self, slot: usize) {
        self.0[slot].set(self.get(slot) + 1);
    }

    fn get(&self, slot: usize) -> u32 {
        self.0[slot].get()
    }
}

fn pool() -> Pool {
    Pool::new(SlabLayout::new(SLOTS, &[4]).unwrap(), 4)
}

/// Writes to all slots of a slab that no other thread has claimed. Returns their number.
fn fill(open: &OpenSlab, cells: &Cells) -> u32 {
    let mut written = 0;
    for slot in 0..SLOTS {
        if let Some(mut writer) = open.claim(slot..slot + 1) {
            writer.slot_mut(slot)[0].fill(7);
            cells.add(slot);
            written += 1;
        }
    }
    written
}

#[test]
fn a_slot_has_one_writer_and_the_last_owner_seals_what_all_have_written() {
    loom::model(|| {
        let (open, cells) = (pool().open().unwrap(), Cells::new());
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (open, cells) = (open.clone(), Arc::clone(&cells));
                thread::spawn(move || {
                    let written = fill(&open, &cells);
                    (written, open.seal().ok())
                })
            })
            .collect();
        let mut slab = open.seal().ok();
        let mut written = 0;
        let all_written = |cells: &Cells| (0..SLOTS).all(|slot| cells.get(slot) == 1);
        if slab.is_some() {
            assert!(all_written(&cells), "the first owner was the last");
        }
        for thread in threads {
            let (by_it, sealed) = thread.join().unwrap();
            written += by_it;
            assert!(sealed.is_none() || slab.is_none(), "a slab is sealed once");
            slab = slab.or(sealed);
        }
        assert_eq!(written, SLOTS as u32);
        assert!(all_written(&cells));
        if let Some(slab) = slab {
            assert_eq!(slab.region(0), [7; 4 * SLOTS]);
        }
    });
}

#[test]
fn a_writer_that_is_left_keeps_the_slab_open() {
    loom::model(|| {
        let (open, cells) = (pool().open().unwrap(), Cells::new());
        let mut writer = open.claim(0..SLOTS).unwrap();
        let writing = Arc::clone(&cells);
        let thread = thread::spawn(move || {
            for slot in 0..SLOTS {
                writer.slot_mut(slot)[0].fill(slot as u8);
                writing.add(slot);
            }
        });
        let mut open = Some(open);
        let slab = loop {
            match open.take().unwrap().seal() {
                Ok(slab) => break slab,
                Err(still) => open = Some(still),
            }
            thread::yield_now();
        };
        assert_eq!((cells.get(0), cells.get(1)), (1, 1));
        assert_eq!(slab.region(0)[..8], [0, 0, 0, 0, 1, 1, 1, 1]);
        thread.join().unwrap();
    });
}

#[test]
fn memory_that_comes_back_to_the_pool_has_one_owner_at_a_time() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let pool = pool();
        let first = pool.open().unwrap().seal().unwrap();
        let (address, cells) = (first.start().as_ptr() as usize, Cells::new());
        cells.add(0);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (pool, cells) = (pool.clone(), Arc::clone(&cells));
                thread::spawn(move || {
                    let slab = pool.open().unwrap().seal().unwrap();
                    if slab.start().as_ptr() as usize == address {
                        cells.add(0);
                    }
                })
            })
            .collect();
        drop(first);
        for thread in threads {
            thread.join().unwrap();
        }
        let pieces = pool.spare_bytes() / pool.layout().total_bytes();
        assert!((1..=3).contains(&pieces), "none is lost and none is there twice: {pieces}");
        let all: Vec<_> = (0..pieces).map(|_| pool.open().unwrap()).collect();
        assert_eq!(pool.spare_bytes(), 0);
        drop(all);
        assert_eq!(pool.spare_bytes(), pieces * pool.layout().total_bytes());
    });
}
