//! Metrics of the loader in a training process.
//!
//! - `stats.rs` are its metrics
//! - `serve.rs` serves them over HTTP
//!
//! Always true: nothing listens unless the user asks for it. Requests change nothing, and the stream never waits for them.

mod serve;
mod stats;

pub use serve::{MetricsError, serve};
pub use stats::{LoaderStats, Observed};
