//! Pages that say how a process is doing, over HTTP.
//!
//! In: routes, each a path and a closure that makes its page. Out: pages to whoever asks with GET or HEAD. Nothing can be
//! changed over it, no path leads to a file, and pages are numbers, so nobody is asked who he is.
//!
//! - `server.rs` listens, with bounded connections and times
//! - `prometheus.rs` writes numbers as Prometheus reads them
//! - `numbers.rs` are the pages that a node, a storage server and a loader have alike
//!
//! Always true: a client that is slow or hostile keeps one of few connections for a bounded time.

mod numbers;
mod prometheus;
mod server;

pub use numbers::Numbers;
pub use prometheus::{Exposition, Metric, MetricKind, MetricNumber};
pub use server::{HttpError, HttpServer, Page, Routes};
