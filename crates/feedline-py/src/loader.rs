//! The stream of batches, waited for in short turns so that Ctrl-C works.

use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use feedline_diagnose::doctor::RunReport;
use feedline_engine::error::Error;
use feedline_engine::loader::{Iteration, Loader as Stream, Next};
use feedline_engine::machine::Machine;
use feedline_engine::state::SavedState;
use feedline_order::Epoch;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::batch::to_python;
use crate::errors::{raise, run_error};
use crate::log::BatchLog;
use crate::machine::MachineParts;
use crate::plan::Plan;
use crate::sharing::{Way, alone};
use crate::signals::SIGNAL_CHECK;
use crate::{convert, logging};

/// A stream of batches.
#[pyclass(frozen, module = "feedline._feedline")]
pub struct Loader {
    stream: Option<Arc<Stream>>,
    /// The way to a node, of a loader that shares.
    way: Option<Arc<Way>>,
    log: BatchLog,
    /// The process in which threads were started; 0 before.
    process: AtomicU32,
}

#[pymethods]
impl Loader {
    /// A stream of a plan. Starts nothing.
    #[new]
    fn new(plan: &Bound<'_, Plan>, machine: MachineParts) -> Self {
        logging::install();
        Self::of(Stream::new(Arc::clone(&plan.get().0), &machine.into()), None)
    }

    /// A stream of a plan's samples from the node at `socket`, which `command` starts where there is none; without it there has
    /// to be one. A rank of several gets its share in the order of the plan, all others share what they get. If the node is
    /// lost, the stream goes on alone, if it `continues`.
    #[staticmethod]
    fn shared(
        py: Python<'_>,
        plan: &Bound<'_, Plan>,
        machine: MachineParts,
        socket: PathBuf,
        command: Option<Vec<String>>,
        continues: bool,
    ) -> PyResult<Self> {
        logging::install();
        let plan = Arc::clone(&plan.get().0);
        let machine = Machine::from(machine);
        let way = Arc::new(Way::new(Arc::clone(&plan), socket, command));
        let stream = if plan.config().rank.world > 1 {
            Stream::from_node(plan, &machine, way.open(), continues)
        } else {
            let fallback = continues.then(|| alone(Arc::clone(&plan), machine));
            Stream::shared(&plan, way.connect(), fallback).map_err(|error| run_error(py, &error))?
        };
        Ok(Self::of(stream, Some(way)))
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
        let asked = Instant::now();
        self.log.asked(iteration, asked);
        loop {
            let waited = py.detach(|| loader.wait_within(Iteration::from_number(iteration), SIGNAL_CHECK));
            // Whatever may raise comes before the batch is taken: one that is taken counts as received.
            logging::hand_over(py)?;
            self.way.as_ref().map_or(Ok(()), |way| way.check_interrupt())?;
            py.check_signals()?;
            if !waited.map_err(|error: Error| run_error(py, &error))? {
                continue;
            }
            let ready = Instant::now();
            let next = py.detach(|| loader.take(Iteration::from_number(iteration)));
            match next.map_err(|error| run_error(py, &error))? {
                Next::Batch(batch) => {
                    let samples = batch.len as u64;
                    let fields = to_python(py, *batch)?;
                    self.log.received(iteration, samples, [asked, ready, Instant::now()]);
                    return Ok(Some(fields));
                }
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
            pythonize::depythonize(state).map(SavedState::JobProgress)
        } else {
            pythonize::depythonize(state).map(SavedState::Stream)
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

    /// What bounded the run so far, as plain data, and what is odd about it in words.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Vec<String>)> {
        let loader = self.here(py)?;
        let (log, seconds) = self.log.batches();
        let report = py.detach(|| RunReport::new(loader.plan(), &loader.snapshot(), &log, seconds));
        let told = report.log.anomalies.iter().map(ToString::to_string).collect();
        Ok((convert::to_python(py, &report)?, told))
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
    fn of(stream: Stream, way: Option<Arc<Way>>) -> Self {
        Self { stream: Some(Arc::new(stream)), way, log: BatchLog::default(), process: AtomicU32::new(0) }
    }

    /// The stream, for those who watch it.
    pub fn stream(&self, py: Python<'_>) -> PyResult<Arc<Stream>> {
        self.here(py)?;
        Ok(Arc::clone(self.stream.as_ref().expect("it is here")))
    }

    /// Notes that threads of this process look at it, from now on.
    pub(crate) fn note_threads(&self) {
        self.process.store(process::id(), Ordering::Relaxed);
    }

    fn is_of_parent(&self) -> bool {
        let process = self.process.load(Ordering::Relaxed);
        process != 0 && process != process::id()
    }

    /// The loader, unless its threads were left behind in the parent of a fork, where its locks are, too.
    fn here(&self, py: Python<'_>) -> PyResult<&Stream> {
        match &self.stream {
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
    fn private(&self, py: Python<'_>, what: &str) -> PyResult<&Stream> {
        let text = || format!("a Loader with share=... has no {what}: its samples are prepared by the node");
        let loader = self.here(py)?;
        if loader.is_shared() { Err(raise(py, "FeedlineError", text())) } else { Ok(loader) }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        let Some(loader) = self.stream.take() else { return };
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
