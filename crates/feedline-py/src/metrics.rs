//! The metrics of a loader: over HTTP, and as values.

use std::collections::BTreeMap;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use feedline_data::failure::chain;
use feedline_memory::Mutex;
use feedline_net::http::{HttpServer, Numbers as _};
use feedline_net::loader::{LoaderStats, MetricsError, Observed, serve};
use pyo3::prelude::*;

use crate::errors::raise;
use crate::given::GivenLoader;
use crate::loader::Loader;
use crate::logging;

/// Stands for a closed socket.
const CLOSED: i32 = -1;

/// Serves the metrics of a loader over HTTP until it is closed.
#[pyclass(frozen, weakref, module = "feedline._feedline")]
pub struct Metrics {
    server: Mutex<Option<HttpServer>>,
    /// The listening socket. Not behind the lock, because in a forked child the lock may be held by a thread that does not exist
    /// there.
    descriptor: AtomicI32,
    address: String,
    /// The process that serves.
    process: u32,
}

/// A loader whose metrics are served.
#[derive(FromPyObject)]
enum Served<'py> {
    #[pyo3(transparent)]
    Loader(Bound<'py, Loader>),
    #[pyo3(transparent)]
    Given(Bound<'py, GivenLoader>),
}

#[pymethods]
impl Metrics {
    /// Starts to serve the metrics of `loader` at `address`.
    #[new]
    fn new(py: Python<'_>, loader: Served<'_>, address: &str) -> PyResult<Self> {
        let stream: Arc<dyn Observed> = match &loader {
            Served::Loader(loader) => loader.get().stream(py)?,
            Served::Given(loader) => loader.get().shared(),
        };
        let server = py.detach(|| serve(stream, address)).map_err(|error| {
            let name = if matches!(error, MetricsError::Address { .. }) { "PlanError" } else { "MetricsError" };
            raise(py, name, chain(&error))
        })?;
        if let Served::Loader(loader) = loader {
            loader.get().record_process();
        }
        logging::forward(py)?;
        Ok(Self {
            descriptor: AtomicI32::new(server.descriptor()),
            address: server.address().to_string(),
            server: Mutex::new(Some(server)),
            process: process::id(),
        })
    }

    /// The address and port. `None` after `close`, and in a forked child.
    #[getter]
    fn address(&self) -> Option<&str> {
        let is_open = self.is_here() && self.descriptor.load(Ordering::Relaxed) != CLOSED;
        is_open.then_some(&*self.address)
    }

    /// The listening socket. `None` after `close`. A forked child closes its copy, which would keep the port in use.
    #[getter]
    fn descriptor(&self) -> Option<i32> {
        Some(self.descriptor.load(Ordering::Relaxed)).filter(|&descriptor| descriptor != CLOSED)
    }

    /// Ends the server. Does nothing in a forked child.
    fn close(&self, py: Python<'_>) {
        if self.is_here() {
            // Before the server ends: a child that is forked meanwhile must not close a descriptor that the system has reused.
            self.descriptor.store(CLOSED, Ordering::Relaxed);
            // Detached, because closing waits for a page that is being rendered.
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
            let mut server_to_close = Some(server);
            let closed = Python::try_attach(|py| py.detach(|| drop(server_to_close.take())));
            if closed.is_none() {
                drop(server_to_close);
            }
        } else {
            // Its threads exist only in the parent, and its locks may be held by them. So nothing can be joined or locked here.
            std::mem::forget(server);
        }
    }
}

/// One metric: its name, kind, help text, and values by labels.
type NamedNumbers = (&'static str, &'static str, &'static str, Vec<(BTreeMap<&'static str, String>, f64)>);

/// All metrics of a loader, as in the HTTP page.
#[pyfunction]
pub(crate) fn numbers(py: Python<'_>, loader: &Bound<'_, Loader>) -> PyResult<Vec<NamedNumbers>> {
    let stream = loader.get().stream(py)?;
    let exposition = py.detach(|| LoaderStats::of(&*stream).exposition());
    let labelled = |(labels, value): &(Vec<(&'static str, String)>, f64)| (labels.iter().cloned().collect(), *value);
    let of = exposition.metrics().iter();
    Ok(of.map(|it| (it.name, it.kind.name(), it.help, it.values.iter().map(labelled).collect())).collect())
}
