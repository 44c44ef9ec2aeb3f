//! The function of an `ops.Map`, and where it runs: on the engine's threads, or in worker processes.

use std::ffi::OsString;
use std::fmt;

use feedline_data::memory::{Cancel, Cancelled};
use feedline_data::op::OpError;
use feedline_net::worker::{FunctionCall, FunctionCommand, FunctionError, FunctionPool, FunctionValue};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTraceback};
use serde::{Deserialize, Serialize};

use super::parts::Settings;
use super::values::{argument, returned};
use crate::errors::MapFailed;

/// Where a function runs, as in a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum WorkerType {
    #[default]
    Thread,
    Process,
}

/// A function as another process of this user on this machine gets it. That process never loads it: its workers do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CarriedFunction {
    command: CarriedCommand,
    /// A hash of its code.
    hash: String,
    /// Whether it asks for the key of a sample.
    reads_key: bool,
}

/// How to start a worker process of a function.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CarriedCommand {
    /// The interpreter and its arguments.
    program: Vec<String>,
    /// The pickled function, as text.
    code: String,
}

/// A Python function, and where it runs.
pub(super) struct Function {
    /// `module:function` if the function can be imported by name. Otherwise its place in the chain, and its `repr`.
    name: Result<String, UnnamedFunction>,
    worker_type: WorkerType,
    callee: Callee,
    origin: Origin,
    reads_key: bool,
    /// A hash of its code, once it was asked for: large objects take a while.
    hash: PyOnceLock<String>,
}

#[derive(Clone, Debug)]
struct UnnamedFunction {
    place: usize,
    what: String,
}

enum Callee {
    /// A `SampleFunction`.
    Threads(Py<PyAny>),
    Processes(FunctionPool),
}

enum Origin {
    /// An object of this process, and how many fields it gets and returns.
    Here { function: Py<PyAny>, inputs: usize, outputs: usize },
    /// Handed over by another process.
    Carried(CarriedFunction),
}

/// What a function gets beside its fields.
pub(super) struct CallInfo<'a> {
    pub seeds: [u64; 2],
    pub index: u64,
    pub epoch: u64,
    pub key: Option<&'a str>,
}

impl Function {
    /// A function of this process, for the op at place `place` of a chain.
    pub(super) fn new(
        function: &Bound<'_, PyAny>,
        worker_type: WorkerType,
        settings: &Settings,
        place: usize,
    ) -> PyResult<Self> {
        let py = function.py();
        let (inputs, outputs) = (settings.inputs.names().count(), settings.outputs.names().count());
        let bound = py.import("feedline.worker.functions")?.getattr("SampleFunction")?;
        let bound = bound.call1((function, inputs, outputs))?;
        let reads_key = bound.getattr("asks_for_key")?.extract()?;
        let name = importable_name(function).map_err(|what| UnnamedFunction { place, what });
        let origin = Origin::Here { function: function.clone().unbind(), inputs, outputs };
        let callee = Callee::Threads(bound.unbind());
        let here = Self { name, worker_type, callee, origin, reads_key, hash: PyOnceLock::new() };
        match worker_type {
            WorkerType::Thread => Ok(here),
            WorkerType::Process => {
                let callee = Callee::Processes(here.command(py)?.pool());
                Ok(Self { callee, ..here })
            }
        }
    }

    /// A function that another process of this user handed over. It runs in worker processes, wherever it ran there.
    pub(super) fn carried(name: String, worker_type: WorkerType, carried: CarriedFunction) -> Self {
        let (callee, reads_key) = (Callee::Processes(carried.command.pool()), carried.reads_key);
        let origin = Origin::Carried(carried);
        Self { name: Ok(name), worker_type, callee, origin, reads_key, hash: PyOnceLock::new() }
    }

    /// The same function under the name by which a plan imported it.
    pub(super) fn named(self, name: &str) -> Self {
        Self { name: Ok(name.to_owned()), ..self }
    }

    /// The function for another process of this user. Fails if it cannot be pickled.
    pub(super) fn carry(&self, py: Python<'_>) -> PyResult<CarriedFunction> {
        match &self.origin {
            Origin::Here { .. } => Ok(CarriedFunction {
                command: self.command(py)?,
                hash: self.hash(py)?.to_owned(),
                reads_key: self.reads_key,
            }),
            Origin::Carried(carried) => Ok(carried.clone()),
        }
    }

    /// How to start a worker process.
    fn command(&self, py: Python<'_>) -> PyResult<CarriedCommand> {
        let (function, inputs, outputs) = match &self.origin {
            Origin::Here { function, inputs, outputs } => (function, inputs, outputs),
            Origin::Carried(carried) => return Ok(carried.command.clone()),
        };
        let carrying = py.import("feedline.worker.carried")?;
        Ok(CarriedCommand {
            program: carrying.getattr("worker_program")?.call0()?.extract()?,
            code: carrying.getattr("pack")?.call1((function, inputs, outputs))?.extract()?,
        })
    }

    /// The name for a plan: that of the function, or its place.
    pub(super) fn plan_name(&self) -> String {
        match &self.name {
            Ok(name) => name.clone(),
            Err(unnamed) => format!("function at place {}", unnamed.place),
        }
    }

    /// Why a plan cannot name the function, if it cannot.
    pub(super) fn unwritable(&self) -> Option<String> {
        let unnamed = self.name.as_ref().err()?;
        Some(format!(
            "{} cannot be imported by name; define it in a module and give fn=\"module:function\"",
            unnamed.what
        ))
    }

    /// Where it runs, as in a plan.
    pub(super) fn worker_type(&self) -> WorkerType {
        self.worker_type
    }

    /// Whether calls hold the interpreter's lock of this process.
    pub(super) fn holds_interpreter(&self) -> bool {
        matches!(self.callee, Callee::Threads(_))
    }

    /// Whether it asks for the key of a sample.
    pub(super) fn reads_key(&self) -> bool {
        self.reads_key
    }

    /// A hash of its code.
    pub(super) fn hash<'a>(&'a self, py: Python<'_>) -> PyResult<&'a str> {
        let function = match &self.origin {
            Origin::Here { function, .. } => function,
            Origin::Carried(carried) => return Ok(&carried.hash),
        };
        let hash = || py.import("feedline.worker.code_hash")?.getattr("code_hash")?.call1((function,))?.extract();
        self.hash.get_or_try_init(py, hash).map(String::as_str)
    }

    /// Ends idle worker processes.
    pub(super) fn release(&self) {
        if let Callee::Processes(pool) = &self.callee {
            pool.release();
        }
    }

    /// Calls the function for one sample or batch.
    pub(super) fn call(
        &self,
        values: &[FunctionValue<'_>],
        info: &CallInfo<'_>,
        cancel: &Cancel,
    ) -> Result<Vec<FunctionValue<'static>>, OpError> {
        let &CallInfo { seeds, index, epoch, key } = info;
        match &self.callee {
            // Attached while arguments are copied, the function runs and results are converted.
            Callee::Threads(function) => Python::attach(|py| {
                let function = function.bind(py);
                let arguments: PyResult<Vec<Bound<'_, PyAny>>> =
                    values.iter().map(|value| argument(py, value)).collect();
                let called =
                    arguments.and_then(|values| function.call_method1("call", (values, (seeds[0], seeds[1]), index, epoch, key)));
                let called = called.map_err(|error| MapFailed::raised(py, without_first_frame(py, error)))?;
                let results = function.call_method1("results", (called,)).and_then(|results| returned(&results));
                results.map_err(|error| MapFailed::returned(py, error))
            }),
            Callee::Processes(pool) => {
                let call = FunctionCall { values, seeds, index, epoch, key };
                pool.call(&call, cancel).map_err(op_error)
            }
        }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("name", &self.name).finish_non_exhaustive()
    }
}

impl CarriedCommand {
    fn pool(&self) -> FunctionPool {
        let program = self.program.iter().map(OsString::from).collect();
        FunctionPool::new(FunctionCommand { program, function: self.code.clone().into_bytes() })
    }
}

fn op_error(error: FunctionError) -> OpError {
    match error {
        FunctionError::Cancelled => OpError::Cancelled(Cancelled),
        FunctionError::Raised(pickled) => Python::attach(|py| MapFailed::raised(py, exception(&pickled, py))),
        FunctionError::Unusable(pickled) => Python::attach(|py| MapFailed::returned(py, exception(&pickled, py))),
        other => OpError::Foreign(Box::new(other)),
    }
}

/// Leaves out the frame of `SampleFunction.call`, so that the traceback begins in the user's function.
fn without_first_frame(py: Python<'_>, error: PyErr) -> PyErr {
    let rest = error.traceback(py).and_then(|first| first.getattr("tb_next").ok());
    if let Some(rest) = rest.and_then(|rest| rest.cast_into::<PyTraceback>().ok()) {
        error.set_traceback(py, Some(rest));
    }
    error
}

/// The exception of a worker.
fn exception(pickled: &[u8], py: Python<'_>) -> PyErr {
    let loaded = py.import("feedline.worker.carried").and_then(|carrying| {
        carrying.getattr("exception_of")?.call1((PyBytes::new(py, pickled),)).map(PyErr::from_value)
    });
    loaded.unwrap_or_else(|error| error)
}

/// `module:function` if the loaded module has this object under this name. Otherwise the `repr` of the function.
fn importable_name(function: &Bound<'_, PyAny>) -> Result<String, String> {
    let attribute = |name: &str| function.getattr(name).and_then(|value| value.extract::<String>()).ok();
    let what = || function.repr().map_or_else(|_| "the function".to_owned(), |repr| repr.to_string());
    let (Some(module), Some(name)) = (attribute("__module__"), attribute("__qualname__")) else {
        return Err(what());
    };
    let imported = function.py().import("sys").and_then(|sys| sys.getattr("modules"));
    let found = imported.and_then(|modules| modules.get_item(&module)).and_then(|module| module.getattr(&*name));
    match found {
        // In another process `__main__` is another module.
        Ok(found) if found.is(function) && module != "__main__" => Ok(format!("{module}:{name}")),
        _ => Err(what()),
    }
}
