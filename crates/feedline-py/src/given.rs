//! Batches of a Python dataset that worker processes make. A sampler in Python chooses their samples.

use std::os::unix::net::UnixStream;
use std::process;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_data::batch::{Batch, FieldData, Unslotted};
use feedline_data::source::DATASET_FIELD;
use feedline_engine::loader::{ChosenBatch, GivenLoader as Stream, Visits};
use feedline_engine::machine::Machine;
use feedline_engine::supply::{MakingSupply, SampleMaker};
use feedline_memory::Mutex;
use feedline_net::worker::{CallError, OnLoss, WorkerPool};
use feedline_order::{Epoch, Position, SampleId, SampleRequest, Seed};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::batch::{Array, region};
use crate::buffer::{adopt_sockets, seed_twister, twister_words};
use crate::errors::{raise, run_error};
use crate::machine::MachineParts;
use crate::plan::Plan;
use crate::signals::SIGNAL_CHECK;
use crate::{convert, logging};

/// A stream of batches from worker processes.
#[pyclass(frozen, module = "feedline._feedline")]
pub struct GivenLoader {
    /// `None` only in `drop`.
    stream: Option<Arc<Stream>>,
    workers: Arc<WorkerPool>,
    /// The process that started the threads.
    process: u32,
}

/// A batch as Python gets it: the arrays of its leaves, and for each sample that is not wholly in them its slot and its bytes.
type Parts<'py> = (Bound<'py, PyList>, Bound<'py, PyList>);

#[pymethods]
impl GivenLoader {
    /// A stream over the workers behind `sockets`, which become the property of this object. With `replaces` a lost worker may be
    /// replaced.
    #[new]
    fn new(
        py: Python<'_>,
        plan: &Bound<'_, Plan>,
        machine: MachineParts,
        sockets: Vec<i32>,
        replaces: bool,
    ) -> PyResult<Self> {
        logging::install();
        let plan = Arc::clone(&plan.get().0);
        let machine = Machine::from(machine);
        let streams: Vec<UnixStream> = adopt_sockets(sockets);
        let on_loss = if replaces { OnLoss::Replace } else { OnLoss::Fail };
        let workers = Arc::new(WorkerPool::new(streams, plan.settings().seed, on_loss));
        let maker: Arc<dyn SampleMaker> = Arc::<WorkerPool>::clone(&workers);
        let supply = Arc::new(MakingSupply::new(Arc::clone(&plan), maker, plan.settings().batch_size));
        let stream = py.detach(|| Stream::start(plan, supply, &machine));
        let stream = stream.map_err(|error| run_error(py, &error))?;
        Ok(Self { stream: Some(Arc::new(stream)), workers, process: process::id() })
    }

    /// Requests a batch. `indices` replaces the numbers of `ids` in the worker. `worker` binds the batch to one worker.
    fn request(
        &self,
        py: Python<'_>,
        epoch: u64,
        first: u64,
        ids: Vec<u64>,
        indices: Option<Vec<u8>>,
        worker: Option<usize>,
    ) -> PyResult<()> {
        self.here(py)?;
        let ids = ids.into_iter().map(SampleId).collect();
        let batch = ChosenBatch { epoch: Epoch(epoch), first: Position(first), ids, indices, worker };
        py.detach(|| self.stream().request(batch));
        Ok(())
    }

    /// Counts samples of the epoch that were received before.
    fn skip(&self, epoch: u64, first: u64, ids: Vec<u64>) {
        self.stream().skip(Epoch(epoch), Position(first), ids.into_iter().map(SampleId).collect());
    }

    /// How many batches to request ahead.
    #[getter]
    fn wanted_ahead(&self) -> usize {
        self.stream().wanted_ahead()
    }

    /// Waits up to `timeout` seconds for the next batch. `None` after that time, or if a worker was lost that can be replaced.
    fn next<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Parts<'py>>> {
        self.here(py)?;
        // A time that is too long to be represented is no limit.
        let limit = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let left = deadline.map_or(SIGNAL_CHECK, |end| end.saturating_duration_since(Instant::now()));
            let waited = py.detach(|| self.stream().wait_within(left.min(SIGNAL_CHECK)));
            logging::forward(py)?;
            py.check_signals()?;
            if waited.map_err(|error| run_error(py, &error))? {
                let batch = py.detach(|| self.stream().take()).map_err(|error| run_error(py, &error))?;
                if let Some(batch) = batch {
                    return parts(py, batch).map(Some);
                }
            } else if left.is_zero() || (self.workers.replaces() && !self.workers.lost().is_empty()) {
                return Ok(None);
            }
        }
    }

    /// The schema of the leaves, once a sample was made.
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.stream().supply().form().map(|form| PyBytes::new(py, &form.schema))
    }

    /// Lost workers that were not replaced, each with the index of the sample that it made.
    #[getter]
    fn lost(&self) -> Vec<(usize, u64)> {
        self.workers.lost().into_iter().map(|(worker, sample)| (worker, sample.id.0)).collect()
    }

    /// Connects a worker in place of a lost one.
    fn replace(&self, worker: usize, socket: i32) {
        for stream in adopt_sockets(vec![socket]) {
            self.workers.replace(worker, stream);
        }
    }

    /// The index of the sample that a worker makes now.
    fn current(&self, worker: usize) -> Option<u64> {
        self.workers.current(worker).map(|sample| sample.id.0)
    }

    /// The Python stacks that a worker wrote, from byte `start` on. It writes one each time it gets the signal for that.
    fn stacks<'py>(&self, py: Python<'py>, worker: usize, start: u64) -> Option<Bound<'py, PyBytes>> {
        self.workers.stacks(worker, start).map(|text| PyBytes::new(py, &text))
    }

    /// Calls a function in a worker that has no request. Returns whether it succeeded, and its pickled result or exception.
    fn call<'py>(&self, py: Python<'py>, worker: usize, content: &[u8]) -> PyResult<(bool, Bound<'py, PyBytes>)> {
        self.here(py)?;
        let interrupt = Mutex::new(None);
        let is_interrupted = || {
            let raised = Python::attach(|py| py.check_signals().err());
            let mut interrupt = interrupt.lock();
            *interrupt = interrupt.take().or(raised);
            interrupt.is_some()
        };
        let called = py.detach(|| self.workers.call(worker, content, &is_interrupted));
        if let Some(raised) = interrupt.lock().take() {
            return Err(raised);
        }
        match called {
            Ok(result) => Ok((true, PyBytes::new(py, &result))),
            Err(CallError::Raised { exception, .. }) => Ok((false, PyBytes::new(py, &exception))),
            Err(error) => Err(PyRuntimeError::new_err(error.to_string())),
        }
    }

    /// Drops all requests and prepared batches.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.here(py)?;
        py.detach(|| self.stream().reset());
        Ok(())
    }

    /// All counters.
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_python(py, &self.stream().snapshot())
    }

    /// Ends the threads.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.process == process::id() {
            py.detach(|| self.stream().close());
            logging::forward(py)?;
        }
        Ok(())
    }
}

impl Drop for GivenLoader {
    fn drop(&mut self) {
        // A forked child does not have the threads, so ending them would hang.
        if self.process == process::id() {
            drop(self.stream.take());
        } else {
            std::mem::forget(self.stream.take());
        }
    }
}

impl GivenLoader {
    /// The stream, for metrics.
    pub(crate) fn shared(&self) -> Arc<Stream> {
        Arc::clone(self.stream.as_ref().expect("it is there until the object is dropped"))
    }

    fn stream(&self) -> &Stream {
        self.stream.as_ref().expect("it is there until the object is dropped")
    }

    /// Fails in a forked child, which does not have the threads.
    fn here(&self, py: Python<'_>) -> PyResult<()> {
        if self.process == process::id() {
            return Ok(());
        }
        let text = "this loader was started in the parent process; make a feedline.torch.DataLoader in the child";
        Err(raise(py, "ForkError", text.to_owned()))
    }
}

/// The seeds of samples in the order of a sampler, for random number generators of the user's code.
#[pyclass(frozen, module = "feedline._feedline")]
pub struct SampleSeeds {
    seed: Seed,
    visits: Mutex<Visits>,
}

#[pymethods]
impl SampleSeeds {
    /// Seeds that follow from `seed`.
    #[new]
    fn new(seed: u64) -> Self {
        Self { seed: Seed(seed), visits: Mutex::default() }
    }

    /// Begins an epoch.
    fn begin(&self, epoch: u64) {
        self.visits.lock().begin(Epoch(epoch));
    }

    /// The seeds of the next samples.
    fn next(&self, ids: Vec<u64>) -> Vec<u64> {
        let mut visits = self.visits.lock();
        let epoch = visits.epoch();
        let mut seed = |id| {
            let id = SampleId(id);
            WorkerPool::seed_of(self.seed, SampleRequest { id, epoch, occurrence: visits.count(id) })
        };
        ids.into_iter().map(&mut seed).collect()
    }
}

/// Seeds Python's `random`, whose state is at `address`.
#[pyfunction]
pub(crate) fn seed_random(py: Python<'_>, address: usize, seed: u64) {
    seed_twister(py, address, seed);
}

/// The words of the state that [`seed_random`] sets.
#[pyfunction]
pub(crate) fn random_words(seed: u64) -> Vec<u32> {
    twister_words(seed).to_vec()
}

fn parts(py: Python<'_>, batch: Batch) -> PyResult<Parts<'_>> {
    let (leaves, rest) = (PyList::empty(py), PyList::empty(py));
    for field in batch.fields {
        match field.data {
            FieldData::List(values) if &*field.name == DATASET_FIELD => {
                for (slot, value) in values.into_iter().enumerate() {
                    // Empty: the sample is wholly in its slot.
                    if let Unslotted::Array { dtype, shape, bytes } = value
                        && !bytes.is_empty()
                    {
                        rest.append((slot, Array::owned(dtype, shape, bytes)))?;
                    }
                }
            }
            FieldData::Region { span, dtype, shape } => leaves.append(region(py, span, dtype, shape)?)?,
            other => unreachable!("a batch of a dataset has leaves and a list of samples: {other:?}"),
        }
    }
    Ok((leaves, rest))
}
