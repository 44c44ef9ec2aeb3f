//! The stream of batches. It waits in short intervals, so that Ctrl-C works.

use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use feedline_diagnose::doctor::RunReport;
use feedline_engine::error::Error;
use feedline_engine::loader::{BatchFunction, Iteration, Loader as Stream, Next};
use feedline_engine::machine::{CoreWeight, Machine};
use feedline_engine::state::SavedState;
use feedline_order::Epoch;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::batch::to_python;
use crate::errors::{raise, run_error};
use crate::log::BatchLog;
use crate::machine::MachineParts;
use crate::map::FunctionParts;
use crate::plan::Plan;
use crate::sharing::{NodeConnection, alone};
use crate::signals::SIGNAL_CHECK;
use crate::{convert, logging};

/// A stream of batches.
#[pyclass(frozen, module = "feedline._feedline")]
pub struct Loader {
    stream: Option<Arc<Stream>>,
    /// The connection to a node, if a node prepares the samples.
    node: Option<Arc<NodeConnection>>,
    log: BatchLog,
    /// The process that started the threads. 0 before the start.
    process: AtomicU32,
}

#[pymethods]
impl Loader {
    /// A loader for a plan. It starts no threads yet.
    #[new]
    fn new(plan: &Bound<'_, Plan>, machine: MachineParts) -> Self {
        logging::install();
        Self::of(Stream::new(Arc::clone(&plan.get().0), &machine.into()), None)
    }

    /// A loader for a plan whose samples come from the node at `socket`. If there is no node, `command` starts one; without a
    /// command this is an error. With several ranks, each gets its share in the order of the plan. Otherwise jobs share all
    /// samples. If the node is lost and `continues` is set, the loader prepares the samples itself. `weight` was checked.
    #[staticmethod]
    fn shared(
        py: Python<'_>,
        plan: &Bound<'_, Plan>,
        machine: MachineParts,
        socket: PathBuf,
        command: Option<Vec<String>>,
        continues: bool,
        weight: f64,
    ) -> PyResult<Self> {
        logging::install();
        let plan = Arc::clone(&plan.get().0);
        let machine = Machine::from(machine);
        let node = Arc::new(NodeConnection::new(
            Arc::clone(&plan),
            socket,
            command,
            CoreWeight::new(weight).unwrap_or_default(),
        ));
        let stream = if plan.config().rank.world > 1 {
            Stream::from_node(plan, &machine, node.open(), continues)
        } else {
            let fallback = continues.then(|| alone(Arc::clone(&plan), machine));
            Stream::shared(&plan, node.connect(), fallback).map_err(|error| run_error(py, &error))?
        };
        Ok(Self::of(stream, Some(node)))
    }

    /// A loader for the same source and ops with other samples or another rank. It takes over the samples cached in memory, and
    /// the memory of batches.
    fn following(&self, py: Python<'_>, plan: &Bound<'_, Plan>) -> PyResult<Self> {
        Ok(Self::of(self.here(py)?.following(Arc::clone(&plan.get().0)), None))
    }

    /// Lets all batches go through functions. Before the first batch.
    fn map_batches(&self, py: Python<'_>, functions: Vec<FunctionParts>) -> PyResult<()> {
        let loader = self.here(py)?;
        let seed = loader.plan().settings().seed;
        let function = |(number, parts): (usize, FunctionParts)| -> PyResult<Arc<dyn BatchFunction>> {
            Ok(Arc::new(parts.on_batches(py, seed, number as u32)?))
        };
        loader.map_batches(functions.into_iter().enumerate().map(function).collect::<PyResult<_>>()?);
        Ok(())
    }

    /// Begins an iteration and returns its number.
    fn begin(&self, py: Python<'_>) -> PyResult<u64> {
        let loader = self.here(py)?;
        py.detach(|| loader.begin()).map(Iteration::number).map_err(|error| run_error(py, &error))
    }

    /// The next batch of an iteration as (name, data) pairs. `None` at its end.
    fn next<'py>(&self, py: Python<'py>, iteration: u64) -> PyResult<Option<Bound<'py, PyList>>> {
        let loader = self.here(py)?;
        // Waiting for the first batch starts threads. From now on a forked child must not use this loader.
        self.record_process();
        let asked = Instant::now();
        self.log.requested(iteration, asked);
        loop {
            let waited = py.detach(|| loader.wait_within(Iteration::from_number(iteration), SIGNAL_CHECK));
            // A batch counts as received once it is taken, so an exception after that loses it. These calls come first, because
            // they may raise at any time.
            logging::forward(py)?;
            self.node.as_ref().map_or(Ok(()), |node| node.check_interrupt())?;
            py.check_signals()?;
            if !waited.map_err(|error: Error| run_error(py, &error))? {
                continue;
            }
            // From here on the time counts as hand-over, not as waiting.
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

    /// Frees the resources of an iteration that is left early.
    fn abandon(&self, py: Python<'_>, iteration: u64) -> PyResult<()> {
        let loader = self.here(py)?;
        py.detach(|| loader.abandon(Iteration::from_number(iteration)));
        logging::forward(py)
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

    /// The state, as plain data.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_python(py, &self.here(py)?.state())
    }

    /// Continues from a state.
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let loader = self.here(py)?;
        // The two kinds of states have different fields. Only that of a job that shares has "shared".
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

    /// The metrics so far.
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let loader = self.here(py)?;
        convert::to_python(py, &py.detach(|| loader.snapshot()))
    }

    /// The report about the run so far, as plain data, and its anomalies as text.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Vec<String>)> {
        let loader = self.here(py)?;
        let (log, seconds) = self.log.batches();
        let report = py.detach(|| RunReport::new(loader.plan(), &loader.snapshot(), &log, seconds));
        let anomalies = report.log.anomalies.iter().map(ToString::to_string).collect();
        Ok((convert::to_python(py, &report)?, anomalies))
    }

    /// The predicted cost of each sample in the next epoch, in seconds and in the order of the source.
    fn costs(&self, py: Python<'_>) -> PyResult<Vec<f64>> {
        let loader = self.private(py, "costs")?;
        Ok(py.detach(|| loader.costs().into_iter().map(|cost| cost.as_secs_f64()).collect()))
    }

    /// Writes the costs of samples to a file.
    fn save_costs(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        let loader = self.private(py, "save_costs")?;
        Ok(py.detach(|| loader.save_costs(Path::new(path)))?)
    }

    /// How the order of delivery differs from strict order in an epoch. `None` in strict order.
    #[pyo3(signature = (epoch))]
    fn order_report<'py>(&self, py: Python<'py>, epoch: Option<u64>) -> PyResult<Bound<'py, PyAny>> {
        let loader = self.private(py, "order_report")?;
        convert::to_python(py, &py.detach(|| loader.order_report(epoch.map(Epoch))))
    }

    /// Ends the threads. A closed loader cannot be used again. Without effect in a process that was forked
    /// after the threads were started.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_of_parent() {
            return Ok(());
        }
        let loader = self.here(py)?;
        py.detach(|| loader.close());
        logging::forward(py)
    }
}

impl Loader {
    fn of(stream: Stream, node: Option<Arc<NodeConnection>>) -> Self {
        Self { stream: Some(Arc::new(stream)), node, log: BatchLog::default(), process: AtomicU32::new(0) }
    }

    /// The stream, for metrics.
    pub fn stream(&self, py: Python<'_>) -> PyResult<Arc<Stream>> {
        self.here(py)?;
        Ok(Arc::clone(self.stream.as_ref().expect("`here` checked it")))
    }

    /// Records that this process has started its threads.
    pub(crate) fn record_process(&self) {
        self.process.store(process::id(), Ordering::Relaxed);
    }

    /// Whether its threads were started by a process from which this one was forked.
    fn is_of_parent(&self) -> bool {
        let process = self.process.load(Ordering::Relaxed);
        // 0: no thread was started, so a forked child may use it.
        process != 0 && process != process::id()
    }

    /// The stream. Fails in a forked child: its threads, and the holders of its locks, exist only in the parent.
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
    /// The stream, if this process prepares the samples. Otherwise only the node knows `what`.
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
            // Its threads exist only in the parent, and its locks may be held by them. So nothing can be joined or locked here.
            std::mem::forget(loader);
            return;
        }
        // Detached, because a preparer thread may wait for the interpreter to call a Python function. `Metrics` may still hold the
        // stream, so it is closed explicitly.
        let mut stream = Some(loader);
        let mut close = || stream.take().iter().for_each(|loader| loader.close());
        // At the end of the process the interpreter may be gone. Then nothing has to be detached from.
        if Python::try_attach(|py| py.detach(&mut close)).is_none() {
            close();
        }
    }
}
