//! The parts of the engine that synchronise threads themselves, built on loom's primitives instead of the standard ones.
//!
//! The files are those of the crates, taken by path: they name their primitives as `sync`, which is another module here. So the
//! checks in `tests` run what is shipped, in its interleavings, and neither loom nor a condition for it is in any crate.
#![allow(dead_code, unused_imports, missing_docs, reason = "a part of each crate is taken, and not all of it is used")]

pub mod sync;

#[path = "../../crates/feedline-memory/src/allocation.rs"]
mod allocation;
#[path = "../../crates/feedline-engine/src/machine/cores.rs"]
pub mod cores;
#[path = "../../crates/feedline-memory/src/layout.rs"]
mod layout;
#[path = "../../crates/feedline-memory/src/open.rs"]
mod open;
#[path = "../../crates/feedline-memory/src/pool.rs"]
mod pool;
#[path = "../../crates/feedline-memory/src/slab.rs"]
mod slab;

pub use allocation::Allocation;
pub use layout::SlabLayout;
pub use open::{OpenSlab, SlotWriter};
pub use pool::Pool;
pub use slab::Slab;
