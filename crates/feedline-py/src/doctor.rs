//! The doctor for Python. The training step is a Python function.

use std::sync::Arc;

use feedline_cli::doctor::{FormatCost, formats, html, trace, words};
use feedline_data::batch::Batch;
use feedline_data::failure::chain;
use feedline_data::plan::Plan as CorePlan;
use feedline_diagnose::doctor::{
    BatchTime, Bound as CoreBound, ConsumerThread, Diagnosis as CoreDiagnosis, DoctorError, ExaminationSettings,
    ForeignReport, Job, ProgressEvent, Trainer, Tried, WorkerProcesses,
};
use feedline_engine::machine::Machine;
use feedline_memory::Mutex;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use serde::Serialize;

use crate::batch::to_python;
use crate::errors::{raise, run_error};
use crate::machine::MachineParts;
use crate::plan::Plan;
use crate::{convert, logging};

/// The diagnosis of a job, with the costs of picture formats if tables were requested.
#[pyclass(frozen, module = "feedline._feedline")]
pub struct Diagnosis {
    plan: Arc<CorePlan>,
    machine: Machine,
    settings: ExaminationSettings,
    found: CoreDiagnosis,
    formats: Vec<FormatCost>,
    tried: Mutex<Vec<Tried>>,
}

/// The settings of an examination, as Python passes them.
#[derive(Clone, Copy, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ExaminationArguments {
    /// Duration of the joint run.
    seconds: f64,
    /// Whether to measure tables.
    tables: bool,
}

/// The diagnosis as plain data.
#[derive(Serialize)]
struct DiagnosisData<'a> {
    #[serde(flatten)]
    found: &'a CoreDiagnosis,
    tried: &'a [Tried],
    formats: &'a [FormatCost],
}

#[pymethods]
impl Diagnosis {
    /// Examines a plan. `trainer` is (receive, step): `receive` gets a batch as (name, data) pairs, and `step` trains on it.
    /// `report` gets progress messages.
    #[staticmethod]
    fn examine(
        py: Python<'_>,
        plan: &Bound<'_, Plan>,
        machine: MachineParts,
        trainer: (Py<PyAny>, Py<PyAny>),
        report: &Bound<'_, PyAny>,
        settings: ExaminationArguments,
    ) -> PyResult<Self> {
        logging::install();
        let machine = Machine::from(machine);
        let mut trainer = Functions { receive: trainer.0, step: trainer.1, interrupt: None };
        let plan = Arc::clone(&plan.get().0);
        let settings = ExaminationSettings { seconds: settings.seconds, has_tables: settings.tables };
        let mut report = progress_reporter(report);
        let examined = py.detach(|| CoreDiagnosis::examine(&plan, &machine, settings, &mut trainer, &mut report));
        logging::forward(py)?;
        let found = examined.map_err(|error| trainer.raised(py, error))?;
        let formats = if settings.has_tables { py.detach(formats) } else { Ok(Vec::new()) };
        let formats = formats.map_err(|error| raise(py, "FeedlineError", format!("{error:#}")))?;
        Ok(Self { plan, machine, settings, found, formats, tried: Mutex::default() })
    }

    /// Tries a remedy by its name, with a trainer as in `examine`. Returns the remedy with its measured speed.
    fn try_remedy<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        trainer: (Py<PyAny>, Py<PyAny>),
        report: &Bound<'_, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut trainer = Functions { receive: trainer.0, step: trainer.1, interrupt: None };
        let mut report = progress_reporter(report);
        let job = Job { plan: &self.plan, machine: &self.machine, seconds: self.settings.seconds };
        let tried = py.detach(|| self.found.try_remedy(name, job, &mut trainer, &mut report));
        logging::forward(py)?;
        let tried = tried.map_err(|error| trainer.raised(py, error))?;
        let data = convert::to_python(py, &tried)?;
        self.tried.lock().push(tried);
        Ok(data)
    }

    /// The diagnosis as plain data.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_python(py, &DiagnosisData { found: &self.found, tried: &self.tried.lock(), formats: &self.formats })
    }

    /// The diagnosis as text.
    fn text(&self) -> String {
        words(&self.found, &self.tried.lock(), &self.formats)
    }

    /// The diagnosis as a self-contained HTML page.
    fn html(&self) -> String {
        html(&self.found, &self.tried.lock(), &self.formats)
    }

    /// The timeline of batches as a trace for Perfetto or Chrome.
    fn trace(&self) -> String {
        trace(&self.found.life)
    }
}

/// Forwards progress events to a Python function, as text.
fn progress_reporter(report: &Bound<'_, PyAny>) -> impl FnMut(ProgressEvent) + Send + use<> {
    let report = report.clone().unbind();
    move |event: ProgressEvent| {
        let text = event.to_string();
        // A remedy that could not be measured is a result, so it also appears in the log.
        if matches!(event, ProgressEvent::LeftOut(..)) {
            tracing::warn!("{text}");
        }
        Python::attach(|py| {
            // An error while showing progress does not end the examination.
            if let Err(error) = report.call1(py, (text,)) {
                error.print(py);
            }
        });
    }
}

/// A batch of another loader: its epoch, the milliseconds of wait, hand-over and step, and its number of samples.
type BatchParts = (u64, f64, f64, f64, u64);

/// The report about another loader as plain data, and its anomalies as text. `consumer` is (seconds on a core, seconds waiting for
/// one). `workers` is (fraction of the time computing, fraction blocked by a disk, bytes read per process).
#[pyfunction]
pub(crate) fn foreign_report(
    py: Python<'_>,
    log: Vec<BatchParts>,
    consumer: (f64, f64),
    workers: Option<(Option<f64>, f64, f64)>,
) -> PyResult<(Bound<'_, PyAny>, Vec<String>)> {
    let batch =
        |(epoch, wait_ms, hand_over_ms, step_ms, samples)| BatchTime { epoch, wait_ms, hand_over_ms, step_ms, samples };
    let log: Vec<BatchTime> = log.into_iter().map(batch).collect();
    let consumer = ConsumerThread { computed: consumer.0, queued: consumer.1 };
    let workers = workers.map(|(computing, blocked, read_bytes)| WorkerProcesses { computing, blocked, read_bytes });
    let report = ForeignReport::new(&log, consumer, workers);
    let anomalies = report.log.anomalies.iter().map(ToString::to_string).collect();
    Ok((convert::to_python(py, &report)?, anomalies))
}

/// All bottlenecks: names and descriptions.
#[pyfunction]
pub(crate) fn bounds(py: Python<'_>) -> PyResult<Vec<(Bound<'_, PyAny>, String)>> {
    CoreBound::ALL.iter().map(|bound| Ok((convert::to_python(py, bound)?, bound.to_string()))).collect()
}

/// A trainer made of two functions.
struct Functions {
    receive: Py<PyAny>,
    step: Py<PyAny>,
    /// The exception that ended the examination, if it is not an error of the step, for example `KeyboardInterrupt`.
    interrupt: Option<PyErr>,
}

impl Functions {
    /// The exception for the error of an examination or a trial.
    fn raised(&mut self, py: Python<'_>, error: DoctorError) -> PyErr {
        self.interrupt.take().unwrap_or_else(|| python_error(py, error))
    }

    fn call(&mut self, call: impl FnOnce(&Self, Python<'_>) -> PyResult<()>) -> Result<(), DoctorError> {
        Python::attach(|py| {
            call(self, py).map_err(|error| {
                // `KeyboardInterrupt` and `SystemExit` derive from `BaseException` only. They end everything; an exception is an
                // error of the step.
                if error.is_instance_of::<PyException>(py) {
                    return DoctorError::Step(Box::new(error));
                }
                self.interrupt = Some(error);
                DoctorError::Interrupted
            })
        })
    }
}

impl Trainer for Functions {
    fn receive(&mut self, batch: Batch) -> Result<(), DoctorError> {
        self.call(|functions, py| functions.receive.call1(py, (to_python(py, batch)?,)).map(drop))
    }

    fn step(&mut self) -> Result<(), DoctorError> {
        self.call(|functions, py| functions.step.call0(py).map(drop))
    }

    fn check(&mut self) -> Result<(), DoctorError> {
        self.call(|_, py| py.check_signals())
    }
}

/// An exception from Python is raised unchanged. Other errors become exceptions of the package.
fn python_error(py: Python<'_>, error: DoctorError) -> PyErr {
    match error {
        DoctorError::Run(error) => run_error(py, &error),
        DoctorError::Step(cause) => match cause.downcast::<PyErr>() {
            Ok(raised) => *raised,
            Err(other) => raise(py, "FeedlineError", chain(&*other)),
        },
        DoctorError::NoRemedy { .. } => raise(py, "PlanError", chain(&error)),
        other => raise(py, "FeedlineError", chain(&other)),
    }
}
