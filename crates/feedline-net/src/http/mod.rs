//! Serves metrics and status pages over HTTP.
//!
//! In: routes, each a path and a closure that renders its page. Out: pages for GET and HEAD requests. Requests change nothing, no
//! path leads to a file, and pages contain only numbers. So there is no authentication.
//!
//! - `server.rs` listens, with limits on connections and times
//! - `prometheus.rs` writes metrics in Prometheus' text format
//! - `numbers.rs` are the pages of nodes, storage servers and loaders
//!
//! Always true: a slow or hostile client occupies one of few connections for a bounded time.

mod numbers;
mod prometheus;
mod server;

pub use numbers::Numbers;
pub use prometheus::{Exposition, Metric, MetricKind, MetricNumber};
pub use server::{HttpError, HttpServer, Page, Routes};
