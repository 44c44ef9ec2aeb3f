//! What is kept from one epoch, run or process to the next, because to make it again costs more.
//!
//! Nothing here decides a byte of a sample (law 1): what is kept carries the stamp of what it was made from, and is made anew
//! where that differs, is damaged or gone.

mod memory;
pub(crate) mod record;
mod shelf;

pub use memory::Memories;
pub(crate) use memory::MemoryShelf;
pub use shelf::Shelf;
