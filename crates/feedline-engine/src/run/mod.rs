//! The engine moves samples from a supply through the ops into batches.
//!
//! A window of batches is open ahead of the consumer. Its samples become tasks, the supply says when they can be loaded,
//! preparer threads take the one with the least slack and write it straight into its slot. Slow samples beyond the window
//! start early, in memory of their own. The consumer takes batches in the order of the plan, whatever finished first
//! (law 3). Every queue and all memory in flight is bounded (law 5).

mod agenda;
mod arrival_order;
mod bookkeeping;
mod crew;
mod handle;
mod lasting;
mod open_batch;
mod outlook;
mod placement;
mod prepare;
mod queue;
mod shared;
mod stall;
mod strict_order;
mod stuck;
mod threads;
mod window;
mod work;

pub use agenda::Stretch;
pub use handle::{Delivery, Run};
pub use lasting::Lasting;
pub(crate) use lasting::{keep_costs, lasting_for};
pub(crate) use stuck::Stuck;
