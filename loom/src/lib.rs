//! The code of the engine that synchronises threads, compiled with loom's primitives instead of the standard ones.
//!
//! The source files are those of the crates, included by path. They import their primitives from a module `sync`, which this crate
//! replaces. So the tests check the released code in many interleavings, and no crate depends on loom.
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
#[path = "../../crates/feedline-engine/src/machine/weight.rs"]
mod weight;

pub use allocation::{Allocation, Sharing};
pub use layout::SlabLayout;
pub use open::{OpenSlab, SlotWriter};
pub use pool::Pool;
pub use slab::Slab;
pub use weight::CoreWeight;
