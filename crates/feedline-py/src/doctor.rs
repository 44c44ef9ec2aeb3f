//! The doctor for Python: a step that is a function.

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

/// What was found out about a job, and with tables what pictures of each format take here.
#[pyclass(frozen, module = "feedline._feedline")]
pub struct Diagnosis {
    plan: Arc<CorePlan>,
    machine: Machine,
    settings: ExaminationSettings,
    found: CoreDiagnosis,
    formats: Vec<FormatCost>,
    tried: Mutex<Vec<Tried>>,
}

/// All of it as plain data.
#[derive(Serialize)]
struct DiagnosisData<'a> {
    #[serde(flatten)]
    found: &'a CoreDiagnosis,
    tried: &'a [Tried],
    formats: &'a [FormatCost],
}

#[pymethods]
impl Diagnosis {
    /// Examines a plan: `receive` takes a batch as (name, data) pairs and keeps it, `step` works on it, `tell` hears how far it is.
    #[staticmethod]
    fn examine(
        py: Python<'_>,
        plan: &Bound<'_, Plan>,
        machine: MachineParts,
        trainer: (Py<PyAny>, Py<PyAny>),
        tell: &Bound<'_, PyAny>,
        course: (f64, bool),
    ) -> PyResult<Self> {
        logging::install();
        let machine = Machine::from(machine);
        let mut trainer = Functions { receive: trainer.0, step: trainer.1, interrupt: None };
        let plan = Arc::clone(&plan.get().0);
        let settings = ExaminationSettings { seconds: course.0, has_tables: course.1 };
        let mut told = teller(tell);
        let examined = py.detach(|| CoreDiagnosis::examine(&plan, &machine, settings, &mut trainer, &mut told));
        logging::hand_over(py)?;
        let found = examined.map_err(|error| trainer.raised(py, error))?;
        let formats = if settings.has_tables { py.detach(formats) } else { Ok(Vec::new()) };
        let formats = formats.map_err(|error| raise(py, "FeedlineError", format!("{error:#}")))?;
        Ok(Self { plan, machine, settings, found, formats, tried: Mutex::default() })
    }

    /// Tries one of the remedies by its name, with a trainer as it was examined with; gives the remedy and what it reached.
    fn try_remedy<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        trainer: (Py<PyAny>, Py<PyAny>),
        tell: &Bound<'_, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut trainer = Functions { receive: trainer.0, step: trainer.1, interrupt: None };
        let mut told = teller(tell);
        let job = Job { plan: &self.plan, machine: &self.machine, seconds: self.settings.seconds };
        let tried = py.detach(|| self.found.try_remedy(name, job, &mut trainer, &mut told));
        logging::hand_over(py)?;
        let tried = tried.map_err(|error| trainer.raised(py, error))?;
        let data = convert::to_python(py, &tried)?;
        self.tried.lock().push(tried);
        Ok(data)
    }

    /// All of it as plain data.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        convert::to_python(py, &DiagnosisData { found: &self.found, tried: &self.tried.lock(), formats: &self.formats })
    }

    /// All of it in words.
    fn text(&self) -> String {
        words(&self.found, &self.tried.lock(), &self.formats)
    }

    /// A page that needs nothing else.
    fn html(&self) -> String {
        html(&self.found, &self.tried.lock(), &self.formats)
    }

    /// The life of batches as a trace for Perfetto or Chrome.
    fn trace(&self) -> String {
        trace(&self.found.life)
    }
}

/// Passes on to a Python function what is told.
fn teller(tell: &Bound<'_, PyAny>) -> impl FnMut(ProgressEvent) + Send + use<> {
    let tell = tell.clone().unbind();
    move |told: ProgressEvent| {
        let text = told.to_string();
        if matches!(told, ProgressEvent::LeftOut(..)) {
            tracing::warn!("{text}");
        }
        Python::attach(|py| {
            // Progress that cannot be shown is no reason to stop.
            if let Err(error) = tell.call1(py, (text,)) {
                error.print(py);
            }
        });
    }
}

/// A batch of another loader: its epoch, milliseconds of wait, hand-over and step, and its samples.
type BatchParts = (u64, f64, f64, f64, u64);

/// What bounded another loader, as plain data, and what is odd about it in words. `consumer` has the seconds of its thread on a core
/// and in the queue for one, `workers` the part of their time that processes computed and were blocked, and the bytes that each read.
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
    let told = report.log.anomalies.iter().map(ToString::to_string).collect();
    Ok((convert::to_python(py, &report)?, told))
}

/// What may bound a job, by name, in words.
#[pyfunction]
pub(crate) fn bounds(py: Python<'_>) -> PyResult<Vec<(Bound<'_, PyAny>, String)>> {
    CoreBound::ALL.iter().map(|bound| Ok((convert::to_python(py, bound)?, bound.to_string()))).collect()
}

/// A trainer made of two functions.
struct Functions {
    receive: Py<PyAny>,
    step: Py<PyAny>,
    /// What ended the examination, if that is no error of the step's: a `KeyboardInterrupt` or the like.
    interrupt: Option<PyErr>,
}

impl Functions {
    /// The exception for what ended an examination or a trial.
    fn raised(&mut self, py: Python<'_>, error: DoctorError) -> PyErr {
        self.interrupt.take().unwrap_or_else(|| python_error(py, error))
    }

    fn call(&mut self, call: impl FnOnce(&Self, Python<'_>) -> PyResult<()>) -> Result<(), DoctorError> {
        Python::attach(|py| {
            call(self, py).map_err(|error| {
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

/// What was raised in Python as it was raised; all else in words.
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
