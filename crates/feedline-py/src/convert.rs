//! Converts plain data in both directions: dicts to TOML tables, serialisable values to dicts.

use feedline_data::dtype::Dtype;
use feedline_data::source::Labels;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::errors::{raise, source_error};

/// A dict of plain values as a table of a plan.
pub(crate) fn table(value: &Bound<'_, PyAny>) -> PyResult<toml::Table> {
    pythonize::depythonize(value).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Settings of a plan from a dict. An error names the setting, its value and what is expected.
pub(crate) fn settings<T: DeserializeOwned>(dict: &Bound<'_, PyDict>) -> PyResult<T> {
    let py = dict.py();
    let mut table = toml::Table::new();
    for (name, value) in dict {
        // Data that is not plain becomes its `repr`. No setting takes that text, so the error says what it expects.
        let plain = pythonize::depythonize(&value).or_else(|_| shown(&value).map(toml::Value::String))?;
        table.insert(name.extract()?, plain);
    }
    serde_path_to_error::deserialize(toml::Value::Table(table)).or_else(|error: serde_path_to_error::Error<_>| {
        let path = error.path().to_string();
        // The path may lead into the setting, such as `order.costs` or `fields[2]`. The message shows the setting as a whole.
        let name = path.split(['.', '[']).next().unwrap_or_default();
        let value = dict.get_item(name)?.map(|value| shown(&value)).transpose()?.unwrap_or_default();
        let wrong: toml::de::Error = error.into_inner();
        Err(raise(py, "PlanError", refusal(&path, name, &value, wrong.message())))
    })
}

/// The `repr` of a value, shortened for a message.
fn shown(value: &Bound<'_, PyAny>) -> PyResult<String> {
    value.py().import("feedline.arguments")?.getattr("short")?.call1((value,))?.extract()
}

/// The message for a wrong setting. `path` leads to the wrong part of the setting `name`.
fn refusal(path: &str, name: &str, value: &str, problem: &str) -> String {
    let is_whole = path == name;
    // Errors of serde say "invalid ..., expected ...", those of our own types "NAME is ..." or "a size is ...". Only the part that
    // says what is expected is kept.
    let expected = problem
        .split_once("expected ")
        .map(|(_, expected)| expected)
        .or_else(|| problem.strip_prefix(name)?.strip_prefix(" is "))
        .or_else(|| problem.strip_prefix("a size is "));
    match expected {
        Some(expected) if is_whole => format!("{name} is {value}; it must be {expected}"),
        _ if is_whole => format!("{name} is {value}; {problem}"),
        _ => format!("{name} is {value}; {path}: {problem}"),
    }
}

/// Plain data as dicts and lists.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    pythonize::pythonize(py, value).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The element type with a `NumPy` name.
pub(crate) fn dtype(name: &str) -> PyResult<Dtype> {
    Dtype::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = Dtype::ALL.iter().map(|dtype| dtype.name()).collect();
        PyValueError::new_err(format!(
            "elements of type {name} are not supported; the supported types are {}",
            known.join(", ")
        ))
    })
}

/// Labels as Python passes them.
#[derive(FromPyObject)]
pub(crate) enum LabelParts {
    /// The name of the element type, the shape of one label, the bytes of all.
    Numbers(String, Vec<usize>, Vec<u8>),
    /// The name of the element type, the shape of each label, the bytes of all.
    Ragged(String, Vec<Vec<usize>>, Vec<u8>),
    /// The name of each sample's class.
    Names(Vec<String>),
}

/// Labels from their parts.
pub(crate) fn labels(py: Python<'_>, parts: Option<LabelParts>) -> PyResult<Option<Labels>> {
    Ok(match parts {
        None => None,
        Some(LabelParts::Names(names)) => Some(Labels::of_names(&names)),
        Some(LabelParts::Numbers(name, shape, bytes)) => {
            Some(Labels::new(dtype(&name)?, shape, bytes).map_err(|error| source_error(py, error))?)
        }
        Some(LabelParts::Ragged(name, shapes, bytes)) => {
            Some(Labels::ragged(dtype(&name)?, shapes, bytes).map_err(|error| source_error(py, error))?)
        }
    })
}
