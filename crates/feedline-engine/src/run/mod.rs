//! The engine moves samples from a supply through the ops into batches.
//!
//! A window of batches is open ahead of the consumer. Their slots become tasks, and the supply announces which tasks can be loaded.
//! Preparer threads take the task with the least slack and write its samples straight into their slots. Slow samples beyond the
//! window start early, in memory of their own. The consumer receives batches in the order of the plan, whatever finished first (law
//! 3). All queues and all memory in flight are bounded (law 5).

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
mod rows;
mod shared;
mod slabs;
mod stall;
mod strict_order;
mod stuck;
mod window;
mod work;
mod worker_pool;

pub use batch_plan::{BatchRequest, PositionRange};
pub use context::RunContext;
pub(crate) use context::{context_for, keep_costs};
pub use handle::{Delivery, Run};
pub(crate) use stuck::Stuck;
