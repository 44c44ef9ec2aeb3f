//! The loader of a training process, as monitoring sees it.
//!
//! - `stats.rs` is a loader in numbers, and which metric each is
//! - `serve.rs` gives them to whoever asks over HTTP
//!
//! Always true: nothing listens unless it was asked for; what is asked changes nothing, and the stream waits for nobody who asks.

mod serve;
mod stats;

pub use serve::{MetricsError, serve};
pub use stats::LoaderStats;
