//! The memory of batches.
//!
//! A [`Slab`] holds one batch: one region per field, each divided into equal slots, one per sample. While a batch is prepared, the
//! slab is an [`OpenSlab`], of which threads claim disjoint slots ([`SlotWriter`]). Once every writer is dropped, it is sealed into
//! a [`Slab`] with one owner, who may read it, change it and hand it to a user. When that owner drops it, its memory returns to its
//! [`Pool`] and is reused, so a steady run causes no page faults. A pool may hold memory that other processes can map: they see it
//! as a [`View`], and [`Views`] keep such mappings for reuse. A [`Span`] is a part of either kind.
//!
//! Bytes only: nothing here knows samples, types or batches. The unsafe code relies on these invariants:
//!
//! - **M1** An [`Allocation`] owns `len` bytes at `start`, initialised, until it is dropped.
//! - **M2** Slot `s` of region `r` is the bytes `offset(r) + s * slot_bytes(r) ..` of length `slot_bytes(r)`; a
//!   [`SlabLayout`] keeps regions disjoint and inside its `total_bytes`.
//! - **M3** A slot is claimed at most once in the life of an open slab, so at most one [`SlotWriter`] reaches it.
//! - **M4** A [`Slab`] is made only from the last reference to an open slab, so no writer exists beside it.
//! - **M6** Another process that has mapped a slab for writing writes only to the slots of a [`SlotWriter`] that waits for it. A
//!   process that breaks this can damage batches, but not this process: the bytes have no invalid values.

mod allocation;
mod allocator;
mod copy;
mod layout;
mod lock;
mod open;
mod pool;
mod slab;
mod span;
mod sync;
mod view;
mod views;

pub use allocation::{Allocation, Sharing};
pub use allocator::MappingAllocator;
pub use copy::copy_streaming;
pub use layout::SlabLayout;
pub use lock::{Condvar, Mutex, MutexGuard, RwLock};
pub use open::{OpenSlab, SharedSlab, SlotWriter};
pub use pool::Pool;
pub use slab::Slab;
pub use span::Span;
pub use view::View;
pub use views::Views;
