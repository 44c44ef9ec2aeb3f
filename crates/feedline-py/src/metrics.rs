//! The numbers of a loader, for those who watch it: over HTTP, or one by one.

use std::collections::BTreeMap;
use std::process;
use std::sync::atomic::{AtomicI32, Ordering};

use feedline_data::failure::chain;
use feedline_memory::Mutex;
use feedline_net::http::{HttpServer, Numbers as _};
use feedline_net::loader::{LoaderStats, MetricsError, serve};
use pyo3::prelude::*;

use crate::errors::raise;
use crate::loader::Loader;
use crate::logging;

/// The descriptor of a socket that is closed.
const CLOSED: i32 = -1;

/// Serves the numbers of a loader over HTTP until it is closed.
#[pyclass(frozen, weakref, module = "feedline._feedline")]
pub struct Metrics {
    server: Mutex<Option<HttpServer>>,
    /// The socket that listens, known without a lock, which a thread that a fork left behind may hold.
    descriptor: AtomicI32,
    address: String,
    /// The process whose threads serve.
    process: u32,
}

#[pymethods]
impl Metrics {
    /// Begins to serve the numbers of `loader` at `address`.
    #[new]
    fn new(py: Python<'_>, loader: &Bound<'_, Loader>, address: &str) -> PyResult<Self> {
        let stream = loader.get().stream(py)?;
        let server = py.detach(|| serve(stream, address)).map_err(|error| {
            let name = if matches!(error, MetricsError::Address { .. }) { "PlanError" } else { "MetricsError" };
            raise(py, name, chain(&error))
        })?;
        loader.get().note_threads();
        logging::hand_over(py)?;
        Ok(Self {
            descriptor: AtomicI32::new(server.descriptor()),
            address: server.address().to_string(),
            server: Mutex::new(Some(server)),
            process: process::id(),
        })
    }

    /// Where it listens, as address and port; `None` once it is closed, and in a child of the process that serves.
    #[getter]
    fn address(&self) -> Option<&str> {
        let is_open = self.is_here() && self.descriptor.load(Ordering::Relaxed) != CLOSED;
        is_open.then_some(&*self.address)
    }

    /// The socket that listens; `None` once it is closed. For a child that was forked: its copy would keep the port in use.
    #[getter]
    fn descriptor(&self) -> Option<i32> {
        Some(self.descriptor.load(Ordering::Relaxed)).filter(|&descriptor| descriptor != CLOSED)
    }

    /// Ends the server; nothing happens in a child of the process that serves.
    fn close(&self, py: Python<'_>) {
        if self.is_here() {
            self.descriptor.store(CLOSED, Ordering::Relaxed);
            py.detach(|| drop(self.server.lock().take()));
        }
    }
}

impl Metrics {
    fn is_here(&self) -> bool {
        self.process == process::id()
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        let Some(server) = self.server.get_mut().take() else { return };
        if self.is_here() {
            let mut left = Some(server);
            let closed = Python::try_attach(|py| py.detach(|| drop(left.take())));
            if closed.is_none() {
                drop(left);
            }
        } else {
            // Its threads and locks belong to the parent: there is nothing to join and nothing safe to lock.
            std::mem::forget(server);
        }
    }
}

/// One metric: its name, its kind, what it says, and its values by labels.
type NamedNumbers = (&'static str, &'static str, &'static str, Vec<(BTreeMap<&'static str, String>, f64)>);

/// All metrics of a loader, as they are served.
#[pyfunction]
pub(crate) fn numbers(py: Python<'_>, loader: &Bound<'_, Loader>) -> PyResult<Vec<NamedNumbers>> {
    let stream = loader.get().stream(py)?;
    let exposition = py.detach(|| LoaderStats::of(&stream).exposition());
    let labelled = |(labels, value): &(Vec<(&'static str, String)>, f64)| (labels.iter().cloned().collect(), *value);
    let of = exposition.metrics().iter();
    Ok(of.map(|it| (it.name, it.kind.name(), it.help, it.values.iter().map(labelled).collect())).collect())
}
