//! `ops.Map`: a Python function as an op, called on the engine's threads.

use std::fmt;
use std::sync::Arc;

use feedline_data::batch::{FieldTypes, Kind, Memory, Pixels, Sample, Tensor, Value, Volume};
use feedline_data::dtype::Dtype;
use feedline_data::memory::Workspace;
use feedline_data::op::{CheckError, MisplacedOp, On, Op, OpError, PlannedOp};
use feedline_data::plan::PlanError;
use feedline_data::spec::SpecError;
use feedline_order::Draw;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use serde::Deserialize;

use crate::batch::Array;
use crate::convert;
use crate::errors::MapFailed;

/// The name in plans.
pub(crate) const NAME: &str = "Map";

/// A Python function as an op.
#[derive(Clone)]
pub(crate) struct Map {
    function: Arc<Py<PyAny>>,
    on: On,
    deterministic: bool,
    version: u64,
    /// `module:function` if the function can be imported by name. Otherwise its place in the chain, and its `repr`.
    name: Result<String, UnnamedFunction>,
}

#[derive(Clone, Debug)]
struct UnnamedFunction {
    place: usize,
    what: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    r#fn: String,
    #[serde(default)]
    on: On,
    #[serde(default)]
    deterministic: bool,
    #[serde(default)]
    version: u64,
}

/// Builds the op from a plan, importing the function.
pub(crate) fn from_params(params: toml::Table) -> Result<PlannedOp, PlanError> {
    let parameters = |source| SpecError::Parameters { of: "op Map".to_owned(), source: Box::new(source) };
    let Params { r#fn: name, on, deterministic, version } = params.try_into().map_err(parameters)?;
    let refuse = |problem| MisplacedOp { op: NAME.to_owned(), cause: CheckError::Parameter(problem) };
    let Some((module, function)) = name.split_once(':') else {
        return Err(refuse(format!("fn is {name:?}; in a plan it has the form \"module:function\"")).into());
    };
    let found = Python::attach(|py| {
        let found = py.import(module).and_then(|module| module.getattr(function));
        let found = found.map_err(|error| format!("cannot import {name:?}: {error}"))?;
        if found.is_callable() { Ok(found.unbind()) } else { Err(format!("{name:?} is not a function")) }
    });
    let function = Arc::new(found.map_err(refuse)?);
    let map = Map { function, on, deterministic, version, name: Ok(name) };
    let params = map.params();
    Ok(PlannedOp::new(NAME, Arc::new(map), params))
}

impl Map {
    /// A function object at place `place` of the chain.
    pub(crate) fn new(function: Py<PyAny>, on: Vec<String>, deterministic: bool, version: u64, place: usize) -> Self {
        let name = Python::attach(|py| importable_name(function.bind(py)));
        let name = name.map_err(|what| UnnamedFunction { place, what });
        Self { function: Arc::new(function), on: On::from(on), deterministic, version, name }
    }

    /// The parameters, as in a plan.
    pub(crate) fn params(&self) -> toml::Table {
        let name = match &self.name {
            Ok(name) => name.clone(),
            Err(unnamed) => format!("function at place {}", unnamed.place),
        };
        let mut table = toml::Table::new();
        table.insert("fn".to_owned(), name.into());
        table.insert("on".to_owned(), self.on.names().map(str::to_owned).collect::<Vec<_>>().into());
        table.insert("deterministic".to_owned(), self.deterministic.into());
        table.insert("version".to_owned(), (self.version as i64).into());
        table
    }
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

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("name", &self.name).field("on", &self.on).finish_non_exhaustive()
    }
}

impl Op for Map {
    fn on(&self) -> &On {
        &self.on
    }

    fn check(&self, types: &mut FieldTypes) -> Result<(), CheckError> {
        for (field, _) in self.on.kinds(types)? {
            // The type of the result is only known after the call.
            types.set(&field, Kind::Any);
        }
        Ok(())
    }

    fn is_random(&self) -> bool {
        !self.deterministic
    }

    fn runs_anywhere(&self) -> bool {
        false
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn unserialisable(&self) -> Option<String> {
        let unnamed = self.name.as_ref().err()?;
        Some(format!(
            "{} cannot be imported by name; define it in a module and give fn=\"module:function\"",
            unnamed.what
        ))
    }

    fn apply(&self, sample: &mut Sample<'_>, _: &Draw, workspace: &mut Workspace) -> Result<(), OpError> {
        // Before attaching: a closing loader must not wait for the interpreter.
        workspace.cancel().check()?;
        let mut taken = Vec::new();
        for name in self.on.names() {
            taken.push(sample.take(name)?);
        }
        // The function's arguments and results are copies. Results are assumed to be as large as the arguments.
        workspace.reserve(2 * taken.iter().map(Value::content_bytes).sum::<usize>())?;
        // Attached while arguments are copied, the function runs and results are converted.
        let results = Python::attach(|py| self.call(py, &taken))?;
        for ((name, old), new) in self.on.names().zip(taken).zip(results) {
            let memory = match old {
                Value::Bytes(encoded) => Some(encoded.memory),
                Value::Pixels(pixels) => Some(pixels.memory),
                Value::Volume(volume) => Some(volume.memory),
                Value::Tensor(tensor) => Some(tensor.memory),
                Value::Text(_) => None,
            };
            if let Some(memory) = memory {
                // The old memory may be a slot of the batch or a reusable buffer.
                sample.give_back(name, memory, workspace);
            }
            sample.put(name, new);
        }
        Ok(())
    }
}

impl Map {
    fn call(&self, py: Python<'_>, values: &[Value<'_>]) -> Result<Vec<Value<'static>>, OpError> {
        let result = self.run(py, values).map_err(|error| MapFailed::raised(py, error))?;
        results(&result, values).map_err(|error| MapFailed::returned(py, error))
    }

    fn run<'py>(&self, py: Python<'py>, values: &[Value<'_>]) -> PyResult<Bound<'py, PyAny>> {
        let asarray = py.import("numpy")?.getattr("asarray")?;
        let arguments: PyResult<Vec<Bound<'_, PyAny>>> =
            values.iter().map(|value| argument(py, value, &asarray)).collect();
        self.function.bind(py).call1(PyTuple::new(py, arguments?)?)
    }
}

/// The argument for a field: a copy as an array, bytes, or text.
fn argument<'py>(py: Python<'py>, value: &Value<'_>, asarray: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let array = match value {
        Value::Bytes(encoded) => return Ok(PyBytes::new(py, &encoded.memory).into_any()),
        Value::Text(text) => return Ok(text.into_pyobject(py)?.into_any()),
        Value::Volume(volume) => Array::owned(volume.dtype, volume.shape(), volume.memory.to_vec()),
        Value::Tensor(tensor) => Array::owned(tensor.dtype, tensor.shape.clone(), tensor.memory.to_vec()),
        Value::Pixels(pixels) => {
            let mut bytes = vec![0; pixels.packed_bytes()];
            pixels.copy_to(&mut bytes);
            Array::owned(Dtype::U8, pixels.shape(), bytes)
        }
    };
    asarray.call1((array,))
}

/// The new values of the fields.
fn results(result: &Bound<'_, PyAny>, values: &[Value<'_>]) -> PyResult<Vec<Value<'static>>> {
    let asarray = result.py().import("numpy")?.getattr("asarray")?;
    if let [value] = values {
        return Ok(vec![returned(result, &asarray, value)?]);
    }
    let results: Vec<Bound<'_, PyAny>> = result.extract()?;
    if results.len() != values.len() {
        let text = format!("{} values for {} fields", results.len(), values.len());
        return Err(pyo3::exceptions::PyValueError::new_err(text));
    }
    results.iter().zip(values).map(|(result, value)| returned(result, &asarray, value)).collect()
}

/// Converts the result for a field. A uint8 array with the shape of a picture becomes one. A 2D uint8 array in place of a mask
/// stays a mask. A 4D array in place of a volume stays a volume. Other arrays become tensors.
fn returned(result: &Bound<'_, PyAny>, asarray: &Bound<'_, PyAny>, old: &Value<'_>) -> PyResult<Value<'static>> {
    let was_mask = matches!(old, Value::Pixels(pixels) if pixels.is_mask);
    if let Ok(text) = result.extract::<String>() {
        return Ok(Value::Text(text));
    }
    let mut array = asarray.call1((result,))?;
    let order = array.getattr("dtype")?;
    if !order.getattr("isnative")?.extract::<bool>()? {
        // The engine stores native byte order only.
        array = array.call_method1("astype", (order.call_method1("newbyteorder", ("=",))?,))?;
    }
    let name = array.getattr("dtype")?.getattr("name")?.extract::<String>()?;
    let dtype = convert::dtype(&name).map_err(|_| {
        let kind = result.get_type().name().map_or_else(|_| "something".to_owned(), |kind| kind.to_string());
        pyo3::exceptions::PyTypeError::new_err(format!("{kind} of {name} is not an array of numbers"))
    })?;
    let shape: Vec<usize> = array.getattr("shape")?.extract()?;
    let bytes: Vec<u8> = array.call_method0("tobytes")?.cast::<PyBytes>()?.as_bytes().to_vec();
    let memory = Memory::from(bytes);
    Ok(match (Kind::of_array(dtype, &shape), &shape[..]) {
        (Kind::Pixels(kind), &[height, width, _]) => {
            Value::Pixels(Pixels::packed(memory, width as u32, height as u32, kind.channels, false))
        }
        (_, &[height, width]) if was_mask && dtype == Dtype::U8 => {
            Value::Pixels(Pixels::packed(memory, width as u32, height as u32, 1, true))
        }
        (_, &[channels, depth, height, width]) if let Value::Volume(old) = old => {
            let sides = [depth, height, width];
            let volume = Volume::packed(memory, dtype, channels, sides, old.is_label);
            // The voxel spacing is only valid if the function kept the shape.
            Value::Volume(volume.with_spacing(old.spacing.filter(|_| old.sides == sides)))
        }
        _ => Value::Tensor(Tensor::new(dtype, shape, memory)),
    })
}
