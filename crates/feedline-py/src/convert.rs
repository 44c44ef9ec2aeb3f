//! Plain data in both directions: dicts to tables, serialisable values to dicts.

use feedline_data::dtype::Dtype;
use feedline_data::source::Labels;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Serialize;

use crate::errors::source_error;

/// A dict of plain values as a table of a plan.
pub(crate) fn table(value: &Bound<'_, PyAny>) -> PyResult<toml::Table> {
    pythonize::depythonize(value).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Plain data as dicts and lists.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    pythonize::pythonize(py, value).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The element type with a `NumPy` name.
pub(crate) fn dtype(name: &str) -> PyResult<Dtype> {
    Dtype::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = Dtype::ALL.iter().map(|dtype| dtype.name()).collect();
        PyValueError::new_err(format!("elements of type {name} are not supported; there are {}", known.join(", ")))
    })
}

/// Labels as (name of element type, shape of one label, bytes of all).
pub(crate) type LabelParts = (String, Vec<usize>, Vec<u8>);

/// Labels from their parts.
pub(crate) fn labels(py: Python<'_>, parts: Option<LabelParts>) -> PyResult<Option<Labels>> {
    let Some((name, shape, bytes)) = parts else { return Ok(None) };
    Ok(Some(Labels::new(dtype(&name)?, shape, bytes).map_err(|error| source_error(py, error))?))
}
