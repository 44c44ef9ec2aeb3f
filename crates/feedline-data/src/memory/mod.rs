//! Memory in flight and the workspace of a thread: bounded, reused, and returned when work is cancelled.
//!
//! - `budget.rs` limits all bytes in flight; `working.rs` is the memory of one sample in preparation
//! - `machine_share.rs` decides the default share of a loader; `held_bytes.rs` books prepared samples and open batches
//! - `workspace.rs` is the workspace of a thread; `buffer.rs` is its reused memory
//! - `cancel.rs` is the token that ends work early; `no_memory.rs` is why bytes were refused

mod budget;
mod buffer;
mod cancel;
mod held_bytes;
mod machine_share;
mod no_memory;
mod working;
mod workspace;

pub use budget::{BatchNeed, Budget, BudgetSnapshot, Patience};
pub use buffer::Buffer;
pub use cancel::{Cancel, Cancelled};
pub use held_bytes::HeldBytes;
pub use machine_share::{Iterating, LocalRanks, MachineShare};
pub use no_memory::NoMemory;
pub use working::Working;
pub use workspace::Workspace;
