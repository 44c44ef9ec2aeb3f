//! Worker processes that make samples, such as those of a Python dataset.
//!
//! A worker is another process of this user, started by the caller and connected by a Unix socket. It gets requests for samples,
//! writes arrays straight into the slots of shared slabs, and puts everything else into its *arena*, memory of its own that this
//! process reads. One request at a time is under way for each worker.
//!
//! `frame.rs` has the bytes of requests and replies, `link.rs` the connection to one worker, `pool.rs` all workers of a loader.
//! `function.rs` has workers of another kind, which this process starts itself: each calls one Python function (`function_frame.rs`).

mod frame;
mod function;
mod function_frame;
mod link;
mod pool;

pub use function::{FunctionCommand, FunctionError, FunctionPool};
pub use function_frame::{FunctionCall, FunctionValue, values_in_reply};
pub use pool::{CallError, OnLoss, WorkerException, WorkerPool};
