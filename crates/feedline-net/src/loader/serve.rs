//! Serves the metrics of a loader.
//!
//! In: a loader and an address. Out: a server of `/metrics`, `/stats` and `/health` that ends when it is dropped.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::{LoaderStats, Observed};
use crate::http::{HttpError, HttpServer, Routes};

/// A name that may stand in place of a loopback address.
const THIS_MACHINE: &str = "localhost:";

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum MetricsError {
    #[error(
        "metrics is {given:?}; it must be an address of this machine and a port up to 65535, such as \"127.0.0.1:9400\", \
         or \"127.0.0.1:0\" for any free port"
    )]
    Address { given: String },
    #[error(
        "metrics: {listen} is in use by another loader or process; give each loader and each rank a port of its own, \
         or port 0 and look at loader.metrics_address"
    )]
    InUse { listen: SocketAddr },
    #[error(transparent)]
    Http(HttpError),
}

/// Starts to serve the metrics of a loader.
pub fn serve(loader: Arc<dyn Observed>, address: &str) -> Result<HttpServer, MetricsError> {
    let numeric = address.strip_prefix(THIS_MACHINE).map(|port| format!("127.0.0.1:{port}"));
    let listen = numeric.as_deref().unwrap_or(address).parse();
    let listen: SocketAddr = listen.map_err(|_| MetricsError::Address { given: address.to_owned() })?;
    let server = HttpServer::start(listen, Routes::of_numbers(move || LoaderStats::of(&*loader)));
    let server = server.map_err(|error| match error {
        // Two ranks with one port is the usual mistake, so it gets a message of its own.
        HttpError::Listen { listen, ref source } if source.kind() == io::ErrorKind::AddrInUse => {
            MetricsError::InUse { listen }
        }
        other => MetricsError::Http(other),
    })?;
    let address = server.address();
    if listen.ip().is_loopback() {
        tracing::debug!(%address, "serves metrics");
    } else {
        tracing::warn!(%address, "serves metrics to every client that reaches this address, including the names of bad samples");
    }
    Ok(server)
}
