//! Memory in flight and the tools of one thread: bounded, used again, given back when work is cancelled.
//!
//! - `budget.rs` is the account of all bytes in flight, `machine_share.rs` how much of a machine a loader may take unasked,
//!   `held_bytes.rs` the part of it that prepared samples and open batches hold
//! - `workspace.rs` is what one thread works with, `buffer.rs` its reused memory
//! - `cancel.rs` is the token that ends work early, `no_memory.rs` why bytes were refused

mod budget;
mod buffer;
mod cancel;
mod held_bytes;
mod machine_share;
mod no_memory;
mod workspace;

pub use budget::{BatchNeed, Budget, BudgetSnapshot, Patience, Working};
pub use buffer::Buffer;
pub use cancel::{Cancel, Cancelled};
pub use held_bytes::HeldBytes;
pub use machine_share::{Iterating, LocalRanks, MachineShare};
pub use no_memory::NoMemory;
pub use workspace::Workspace;
