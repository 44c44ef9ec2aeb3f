//! The engine moves samples from a supply through the ops into batches.
//!
//! A window of batches is open ahead of the consumer. Its samples become tasks, the supply says when they can be loaded,
//! preparer threads take the one needed soonest and write it straight into its slot. The consumer takes batches in the
//! order of the plan, whatever finished first (law 3). Every queue and all memory in flight is bounded (law 5).

mod budget;
mod cancel;
mod prepare;
mod run;
mod stuck;
mod task;
mod threads;
mod window;
mod workspace;

pub use budget::{BatchNeed, Budget, BudgetSnapshot, NoMemory, Working};
pub use cancel::{Cancel, Cancelled};
pub use run::{Delivery, Run};
pub use task::Task;
pub use workspace::Workspace;
