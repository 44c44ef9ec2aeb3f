//! The stream of batches, waited for in short turns so that Ctrl-C works.

use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use feedline_core::carousel::{Carousel, Memory, Ride};
use feedline_core::error::chain;
use feedline_core::metrics::Metrics;
use feedline_core::order::Epoch;
use feedline_core::plan::Plan as CorePlan;
use feedline_core::sink::{
    Connect, Deliverer, Feed, Iteration, Loader as CoreLoader, LocalFeed, Machine, Next, Open, SharedLoader, Stream,
    StreamState,
};
use feedline_core::{Cursor, Error};
use feedline_net::node::{AttachError, NodeBatches, NodeFeed, attach_or_start};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::batch::to_python;
use crate::convert;
use crate::errors::{raise, run_error};
use crate::logging;
use crate::plan::Plan;

/// How long a wait lasts before signals are looked at.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);

/// The part of the machine's memory for segments of a job that goes on alone.
const ALONE_SHARE: u64 = 4;
/// And how many: what it reads, what arrays are kept over, and what is prepared ahead.
const ALONE_SEGMENTS: u64 = 12;

/// A stream of batches.
#[pyclass(frozen, module = "feedline._feedline")]
pub struct Loader {
    loader: Option<Arc<Stream>>,
    /// The process in which threads were started; 0 before.
    process: AtomicU32,
}

#[pymethods]
impl Loader {
    /// A stream of a plan; `memory` is what the machine has, in bytes, and `cache` where to keep things. Starts nothing.
    #[new]
    #[pyo3(signature = (plan, memory, cache))]
    fn new(plan: &Bound<'_, Plan>, memory: Option<u64>, cache: Option<PathBuf>) -> Self {
        logging::install();
        let machine = Machine { memory_bytes: memory, cache_folder: cache, ..Machine::default() };
        let loader = CoreLoader::new(Arc::clone(&plan.get().0), &machine);
        Self::of(Stream::Private(Box::new(loader)))
    }

    /// A stream of a plan's samples from the node at `socket`, which `command` starts where there is none; without it there has
    /// to be one. A rank of several gets its share in the order of the plan, all others share what they get. If the node is
    /// lost, the stream goes on alone, if it `continues`, within `memory` bytes.
    #[staticmethod]
    fn shared(
        py: Python<'_>,
        plan: &Bound<'_, Plan>,
        machine: (Option<u64>, Option<PathBuf>),
        socket: PathBuf,
        command: Option<Vec<String>>,
        continues: bool,
    ) -> PyResult<Self> {
        logging::install();
        let (memory_bytes, cache_folder) = machine;
        let plan = Arc::clone(&plan.get().0);
        let machine = Machine { memory_bytes, cache_folder, ..Machine::default() };
        if plan.config().rank().world > 1 {
            let open = open(Arc::clone(&plan), socket, command);
            let loader = CoreLoader::from_node(plan, &machine, open, continues);
            return Ok(Self::of(Stream::Private(Box::new(loader))));
        }
        let connect = connect(Arc::clone(&plan), socket, command);
        let fallback = continues.then(|| alone(Arc::clone(&plan), machine));
        let loader = SharedLoader::new(plan, connect, fallback).map_err(|error| run_error(py, &error))?;
        Ok(Self::of(Stream::Shared(Box::new(loader))))
    }

    /// Begins an iteration; gives its number.
    fn begin(&self, py: Python<'_>) -> PyResult<u64> {
        let loader = self.here(py)?;
        py.detach(|| loader.begin()).map(Iteration::number).map_err(|error| run_error(py, &error))
    }

    /// The next batch of an iteration as (name, data) pairs; `None` at its end.
    fn next<'py>(&self, py: Python<'py>, iteration: u64) -> PyResult<Option<Bound<'py, PyList>>> {
        let loader = self.here(py)?;
        self.note_threads();
        loop {
            let waited = py.detach(|| loader.wait_within(Iteration::from_number(iteration), SIGNAL_CHECK));
            // Whatever may raise comes before the batch is taken: one that is taken counts as received.
            logging::hand_over(py)?;
            py.check_signals()?;
            if !waited.map_err(|error: Error| run_error(py, &error))? {
                continue;
            }
            let next = py.detach(|| loader.take(Iteration::from_number(iteration)));
            match next.map_err(|error| run_error(py, &error))? {
                Next::Batch(batch) => return to_python(py, *batch).map(Some),
                Next::End => return Ok(None),
                Next::NotYet => {}
            }
        }
    }

    /// Raises if an iteration gets no more batches: the loader was closed, or a newer iteration began.
    fn check(&self, py: Python<'_>, iteration: u64) -> PyResult<()> {
        let loader = self.here(py)?;
        py.detach(|| loader.check(Iteration::from_number(iteration))).map_err(|error| run_error(py, &error))
    }

    /// Frees what an iteration that is left early still holds.
    fn abandon(&self, py: Python<'_>, iteration: u64) -> PyResult<()> {
        let loader = self.here(py)?;
        py.detach(|| loader.abandon(Iteration::from_number(iteration)));
        logging::hand_over(py)
    }

    /// Makes an epoch the next to run.
    fn set_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        let loader = self.here(py)?;
        py.detach(|| loader.set_epoch(Epoch(epoch))).map_err(|error| run_error(py, &error))
    }

    /// The epoch that the next iteration would run.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.here(py)?.upcoming_epoch().0)
    }

    /// What has been received, as plain data.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_python(py, &self.here(py)?.state())
    }

    /// Goes on from a state.
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let loader = self.here(py)?;
        let is_shared = state.contains("shared").unwrap_or(false);
        let read = if is_shared {
            pythonize::depythonize(state).map(StreamState::Shared)
        } else {
            pythonize::depythonize(state).map(StreamState::Private)
        };
        let state =
            read.map_err(|error| raise(py, "StateError", format!("this is not a state of a Loader: {error}")))?;
        py.detach(|| loader.load_state(&state)).map_err(|error| run_error(py, &error))
    }

    /// All that was done so far, in numbers.
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let loader = self.here(py)?;
        convert::to_python(py, &py.detach(|| loader.snapshot()))
    }

    /// What each sample of the source will take in the next epoch, in seconds.
    fn costs(&self, py: Python<'_>) -> PyResult<Vec<f64>> {
        let loader = self.private(py, "costs")?;
        Ok(py.detach(|| loader.costs().into_iter().map(|cost| cost.as_secs_f64()).collect()))
    }

    /// Writes what samples cost to a file.
    fn save_costs(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        let loader = self.private(py, "save_costs")?;
        Ok(py.detach(|| loader.save_costs(Path::new(path)))?)
    }

    /// What the order of delivery changes in an epoch; nothing in strict order.
    #[pyo3(signature = (epoch))]
    fn order_report<'py>(&self, py: Python<'py>, epoch: Option<u64>) -> PyResult<Bound<'py, PyAny>> {
        let loader = self.private(py, "order_report")?;
        convert::to_python(py, &py.detach(|| loader.order_report(epoch.map(Epoch))))
    }

    /// Ends the threads; a closed loader cannot be used again.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_of_parent() {
            return Ok(());
        }
        let loader = self.here(py)?;
        py.detach(|| loader.close());
        logging::hand_over(py)
    }
}

impl Loader {
    fn of(stream: Stream) -> Self {
        Self { loader: Some(Arc::new(stream)), process: AtomicU32::new(0) }
    }

    /// The stream, for those who watch it.
    pub fn stream(&self, py: Python<'_>) -> PyResult<Arc<Stream>> {
        self.here(py)?;
        Ok(Arc::clone(self.loader.as_ref().expect("it is here")))
    }

    /// Notes that threads of this process look at it, from now on.
    pub fn note_threads(&self) {
        self.process.store(process::id(), Ordering::Relaxed);
    }

    fn is_of_parent(&self) -> bool {
        let process = self.process.load(Ordering::Relaxed);
        process != 0 && process != process::id()
    }

    /// The loader, unless its threads were left behind in the parent of a fork, where its locks are, too.
    fn here(&self, py: Python<'_>) -> PyResult<&Stream> {
        match &self.loader {
            Some(loader) if !self.is_of_parent() => Ok(loader),
            _ => {
                let text = "this Loader was used before the process forked, and its threads are in the parent; \
                            call feedline.Loader in the child";
                Err(raise(py, "ForkError", text.to_owned()))
            }
        }
    }
}

impl Loader {
    /// The loader, if its stream is its own: the node knows what is asked for otherwise.
    fn private(&self, py: Python<'_>, what: &str) -> PyResult<&CoreLoader> {
        let text = format!("a Loader with share=... has no {what}: its samples are prepared by the node");
        self.here(py)?.private().ok_or_else(|| raise(py, "FeedlineError", text))
    }
}

/// Attaches to a node when the first batch is asked for.
fn connect(plan: Arc<CorePlan>, socket: PathBuf, command: Option<Vec<String>>) -> Connect {
    Box::new(move |ride: &Ride| {
        let feed = reach(&socket, command.as_deref(), |socket| NodeFeed::attach(socket, &plan, ride))?;
        Ok(Arc::new(feed) as Arc<dyn Feed>)
    })
}

/// Attaches to a node for the share of a rank when its first batch is asked for.
fn open(plan: Arc<CorePlan>, socket: PathBuf, command: Option<Vec<String>>) -> Open {
    Box::new(move |cursor: &Cursor, metrics: &Arc<Metrics>| {
        let attach = |socket: &Path| NodeBatches::attach(socket, &plan, cursor, metrics);
        Ok(Arc::new(reach(&socket, command.as_deref(), attach)?) as Arc<dyn Deliverer>)
    })
}

/// Attaches to the node at `socket`, which `command` starts where there is none.
fn reach<T>(
    socket: &Path,
    command: Option<&[String]>,
    attach: impl Fn(&Path) -> Result<T, AttachError>,
) -> Result<T, Error> {
    let attached = match command {
        Some(command) => attach_or_start(socket, command, attach),
        None => attach(socket),
    };
    attached.map_err(|error| Error::Attach { reason: chain(&error) })
}

/// Goes on without a node.
fn alone(plan: Arc<CorePlan>, machine: Machine) -> Connect {
    Box::new(move |ride: &Ride| {
        let most = machine.memory_bytes.unwrap_or(u64::MAX) / ALONE_SHARE;
        let slab_bytes = plan.production().map_or(0, |production| production.layout().slab().total_bytes() as u64);
        // One that is alone has no use for segments that it has read.
        let memory_bytes = most.min(ALONE_SEGMENTS * slab_bytes);
        let carousel = Carousel::start(&plan, &machine, Memory::Heap, memory_bytes)?;
        Ok(Arc::new(LocalFeed::board(&Arc::new(carousel), ride)?))
    })
}

impl Drop for Loader {
    fn drop(&mut self) {
        let Some(loader) = self.loader.take() else { return };
        if self.is_of_parent() {
            // Its threads and locks belong to the parent: there is nothing to join and nothing safe to lock.
            std::mem::forget(loader);
            return;
        }
        // Detached, because a preparer thread may be waiting to call a Python function. Who watches it may hold it still.
        let mut left = Some(loader);
        let mut close = || left.take().iter().for_each(|loader| loader.close());
        if Python::try_attach(|py| py.detach(&mut close)).is_none() {
            close();
        }
    }
}
