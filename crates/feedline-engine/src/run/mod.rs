//! The engine moves samples from a supply through the ops into batches.
//!
//! A window of batches is open ahead of the consumer. Its samples become tasks, the supply says when they can be loaded,
//! preparer threads take the one with the least slack and write it straight into its slot. Slow samples beyond the window
//! start early, in memory of their own. The consumer takes batches in the order of the plan, whatever finished first
//! (law 3). Every queue and all memory in flight is bounded (law 5).

mod arrival_order;
mod batch_plan;
mod bookkeeping;
mod context;
mod handle;
mod lookahead;
mod open_batch;
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
mod worker_pool;

pub use batch_plan::PositionRange;
pub use context::RunContext;
pub(crate) use context::{context_for, keep_costs};
pub use handle::{Delivery, Run};
pub(crate) use stuck::Stuck;
