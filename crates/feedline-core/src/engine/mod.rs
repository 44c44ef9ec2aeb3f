//! The engine moves samples from a supply through the ops into batches.
//!
//! A window of batches is open ahead of the consumer. Its samples become tasks, the supply says when they can be loaded,
//! preparer threads take the one with the least slack and write it straight into its slot. Slow samples beyond the window
//! start early, in memory of their own. The consumer takes batches in the order of the plan, whatever finished first
//! (law 3). Every queue and all memory in flight is bounded (law 5).

mod agenda;
mod arrivals;
mod budget;
mod cancel;
mod cores;
mod crew;
mod early;
mod machine_share;
mod open_batch;
mod outlook;
mod prepare;
mod queue;
mod run;
mod shared;
mod stall;
mod stuck;
mod sync;
mod task;
mod threads;
mod window;
mod work;
mod workspace;

pub use agenda::Stretch;
pub use budget::{BatchNeed, Budget, BudgetSnapshot, NoMemory, Patience, Working};
pub use cancel::{Cancel, Cancelled};
pub use cores::{Cores, Permit, Standing};
pub use machine_share::{Iterating, LocalRanks, MachineShare};
pub use run::{Delivery, Lasting, Run};
pub use task::Task;
pub use workspace::Workspace;
