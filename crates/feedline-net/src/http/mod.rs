//! Pages that say how a process is doing, over HTTP.
//!
//! In: routes, each a path and a closure that makes its page. Out: pages to whoever asks with GET or HEAD. Nothing can be
//! changed over it, no path leads to a file, and pages are numbers, so nobody is asked who he is.
//!
//! - `server.rs` listens, with bounded connections and times
//! - `prometheus.rs` writes numbers as Prometheus reads them
//!
//! Always true: a client that is slow or hostile keeps one of few connections for a bounded time.

mod prometheus;
mod server;

pub use prometheus::Exposition;
pub use server::{HttpError, HttpServer, Page, Routes};
