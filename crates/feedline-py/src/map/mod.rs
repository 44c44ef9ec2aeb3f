//! `ops.Map`: a Python function as an op.
//!
//! `op.rs` is the op, `batch.rs` the same for whole batches, `parts.rs` its parameters, `function.rs` the function and where it runs, `values.rs` its arguments and results.

mod batch;
mod function;
mod op;
mod parts;
mod values;

pub(crate) use op::NAME;
pub(crate) use parts::{FunctionParts, from_params};
