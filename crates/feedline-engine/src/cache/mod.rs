//! Data kept from one epoch, run or process to the next, because computing it again costs more.
//!
//! The caches decide no byte of a sample (law 1). Each record carries a stamp of what it was made from. A record with another
//! stamp, a damaged record or a missing one is computed again.

mod memory;
pub(crate) mod record;
mod shelf;

pub use memory::{KeptCache, Memories};
pub(crate) use memory::MemoryShelf;
pub use shelf::Shelf;
