//! The parameters of `ops.Map`: as Python passes them, and as a plan holds them.

use std::collections::BTreeMap;

use feedline_data::dtype::Dtype;
use feedline_data::op::{CheckError, MisplacedOp, On, PlannedOp};
use feedline_data::plan::PlanError;
use feedline_data::spec::SpecError;
use feedline_order::Seed;
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

use super::batch::MapBatch;
use super::function::{CarriedFunction, Function, WorkerType};
use super::op::{Map, NAME};
use crate::convert;

/// The element type and the shape of a result, as declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResultShape {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
}

/// The parameters that do not concern the function itself.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// The fields that the function gets.
    pub inputs: On,
    /// The fields of its results.
    pub outputs: On,
    /// The shapes of results, by field.
    pub shapes: BTreeMap<String, ResultShape>,
    pub deterministic: bool,
    pub version: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    r#fn: String,
    #[serde(default)]
    on: On,
    #[serde(default)]
    out: Option<On>,
    #[serde(default)]
    shapes: BTreeMap<String, ResultShape>,
    #[serde(default)]
    deterministic: bool,
    #[serde(default)]
    version: u64,
    #[serde(default)]
    worker_type: WorkerType,
    /// The function, if another process of this user hands over the plan.
    #[serde(default)]
    carried: Option<CarriedFunction>,
}

/// A function object and its parameters, as Python passes them.
#[derive(FromPyObject)]
pub(crate) struct FunctionParts {
    function: Py<PyAny>,
    on: Vec<String>,
    out: Option<Vec<String>>,
    shapes: BTreeMap<String, (String, Vec<usize>)>,
    deterministic: bool,
    version: u64,
    in_process: bool,
}

impl FunctionParts {
    /// Function number `number` on whole batches of a plan with `seed`.
    pub(crate) fn on_batches(self, py: Python<'_>, seed: Seed, number: u32) -> PyResult<MapBatch> {
        let (settings, worker_type) = (self.settings()?, self.worker_type());
        let function = Function::new(self.function.bind(py), worker_type, &settings, 0)?;
        Ok(MapBatch::new(function, settings, seed, number))
    }

    /// The op at place `place` of the chain.
    pub(crate) fn planned(self, py: Python<'_>, place: usize) -> PyResult<PlannedOp> {
        let (settings, worker_type) = (self.settings()?, self.worker_type());
        let function = Function::new(self.function.bind(py), worker_type, &settings, place)?;
        Ok(Map::new(function, settings).planned())
    }

    fn worker_type(&self) -> WorkerType {
        if self.in_process { WorkerType::Process } else { WorkerType::Thread }
    }

    fn settings(&self) -> PyResult<Settings> {
        let shape = |(field, (dtype, shape)): (&String, &(String, Vec<usize>))| {
            Ok((field.clone(), ResultShape { dtype: convert::dtype(dtype)?, shape: shape.clone() }))
        };
        Ok(Settings {
            inputs: self.on.clone().into(),
            outputs: self.out.clone().unwrap_or_else(|| self.on.clone()).into(),
            shapes: self.shapes.iter().map(shape).collect::<PyResult<_>>()?,
            deterministic: self.deterministic,
            version: self.version,
        })
    }
}

/// Builds the op from a plan. Imports the function, unless it was handed over.
pub(crate) fn from_params(params: toml::Table) -> Result<PlannedOp, PlanError> {
    let parameters = |source| SpecError::Parameters { of: format!("op {NAME}"), source: Box::new(source) };
    let Params { r#fn: name, on, out, shapes, deterministic, version, worker_type, carried } =
        params.try_into().map_err(parameters)?;
    let settings = Settings { outputs: out.unwrap_or_else(|| on.clone()), inputs: on, shapes, deterministic, version };
    let refuse = |problem| MisplacedOp { op: NAME.to_owned(), cause: CheckError::Parameter(problem) };
    let function = match carried {
        Some(carried) => Function::carried(name, worker_type, carried),
        None => imported(&name, worker_type, &settings).map_err(refuse)?,
    };
    Ok(Map::new(function, settings).planned())
}

/// The function with a name such as `"module:function"`.
fn imported(name: &str, worker_type: WorkerType, settings: &Settings) -> Result<Function, String> {
    let Some((module, function)) = name.split_once(':') else {
        return Err(format!("fn is {name:?}; in a plan it has the form \"module:function\""));
    };
    Python::attach(|py| {
        let found = py.import(module).and_then(|module| module.getattr(function));
        let found = found.map_err(|error| format!("cannot import {name:?}: {error}"))?;
        if !found.is_callable() {
            return Err(format!("{name:?} is not a function"));
        }
        let function = Function::new(&found, worker_type, settings, 0).map_err(|error| error.value(py).to_string())?;
        Ok(function.named(name))
    })
}
