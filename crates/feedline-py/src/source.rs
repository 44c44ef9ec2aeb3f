//! Sources. They are opened while detached from the interpreter.

use std::path::PathBuf;
use std::sync::Arc;

use feedline_data::dtype::array_bytes;
use feedline_data::source::{
    ArraySource, DatasetSource, FilesSource, Labels, Opener, Part, Source as CoreSource, Stratum, SubsetSource,
    SyntheticSource,
};
use feedline_order::{Ordinal, SampleId};
use pyo3::prelude::*;

use crate::batch::Array;
use crate::buffer::BorrowedArray;
use crate::convert::{LabelParts, dtype, labels, table, to_python};
use crate::errors::source_error;
use crate::logging;
use crate::registry::registry;

/// A source of samples.
#[pyclass(frozen, module = "feedline._feedline")]
pub struct Source(pub Arc<dyn CoreSource>);

#[pymethods]
impl Source {
    /// Opens a source from its table in a plan. It may cache its listing in the folder `cache`.
    #[staticmethod]
    fn open(py: Python<'_>, params: &Bound<'_, PyAny>, cache: Option<PathBuf>) -> PyResult<Self> {
        logging::install();
        let params = table(params)?;
        let opened = py.detach(|| registry(cache).open_source(params));
        logging::forward(py)?;
        Ok(Self(opened.map_err(|error| source_error(py, error))?))
    }

    /// Samples of listed files.
    #[staticmethod]
    fn files(py: Python<'_>, fields: Vec<(String, Vec<String>)>, label_parts: Option<LabelParts>) -> PyResult<Self> {
        let labels = labels(py, label_parts)?;
        let opened = py.detach(|| FilesSource::new(fields, labels));
        Ok(Self(Arc::new(opened.map_err(|error| source_error(py, error))?)))
    }

    /// Samples of a `.npy` file.
    #[staticmethod]
    fn array_file(
        py: Python<'_>,
        path: &str,
        field: Option<String>,
        label_parts: Option<LabelParts>,
    ) -> PyResult<Self> {
        let labels = labels(py, label_parts)?;
        let opened = py.detach(|| ArraySource::open(path, &registry(None), labels)?.with_field(field));
        Ok(Self(Arc::new(opened.map_err(|error| source_error(py, error))?)))
    }

    /// Samples of an array in memory. `owner` keeps the bytes at `address` alive. Element type and shape determine their number.
    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, reason = "Python lists are converted to vectors")]
    fn array_memory(
        py: Python<'_>,
        owner: Py<PyAny>,
        address: usize,
        dtype_name: &str,
        shape: Vec<usize>,
        field: Option<String>,
        label_parts: Option<LabelParts>,
    ) -> PyResult<Self> {
        let dtype = dtype(dtype_name)?;
        // `None` means that the size overflows. Then no byte of it may be read (B1).
        let len = array_bytes(dtype, &shape).unwrap_or_default();
        let memory = Arc::new(BorrowedArray::new(owner, address, len));
        let opened = ArraySource::in_memory(memory, dtype, &shape, labels(py, label_parts)?)
            .and_then(|source| source.with_field(field));
        Ok(Self(Arc::new(opened.map_err(|error| source_error(py, error))?)))
    }

    /// Samples of a Python dataset, made by worker processes.
    #[staticmethod]
    fn dataset(samples: u64, name: String) -> Self {
        Self(Arc::new(DatasetSource::new(samples, name)))
    }

    /// Samples that are computed from their index.
    #[staticmethod]
    fn synthetic(py: Python<'_>, samples: u64, shape: Vec<usize>) -> PyResult<Self> {
        let opened = SyntheticSource::new(samples, shape);
        Ok(Self(Arc::new(opened.map_err(|error| source_error(py, error))?)))
    }

    /// The samples with these indices.
    fn subset(&self, py: Python<'_>, indices: Vec<u64>) -> PyResult<Self> {
        self.part(py, Part::Indices { indices })
    }

    /// The fraction `start..end` of a random permutation. With `by_label`, of each class separately (stratified).
    fn share(&self, py: Python<'_>, seed: u64, start: f64, end: f64, by_label: bool) -> PyResult<Self> {
        let by = by_label.then_some(Stratum::Label);
        self.part(py, Part::Share { seed, from: start, to: end, by })
    }

    fn __len__(&self) -> usize {
        self.0.len() as usize
    }

    /// Names of the classes.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.0.classes().to_vec()
    }

    /// Number of files that were left out.
    #[getter]
    fn skipped(&self) -> u64 {
        self.0.skipped()
    }

    /// Names of the fields.
    #[getter]
    fn fields(&self) -> Vec<String> {
        self.0.fields().iter().map(|(name, _)| name.to_string()).collect()
    }

    /// The indices of the samples, in the source's order.
    fn indices(&self) -> Vec<u64> {
        (0..self.0.len()).map(|ordinal| self.0.id_at(Ordinal(ordinal)).0).collect()
    }

    /// The names of the samples, in the source's order.
    fn keys(&self, py: Python<'_>) -> Vec<String> {
        let id = |ordinal| self.0.id_at(Ordinal(ordinal));
        py.detach(|| (0..self.0.len()).map(|ordinal| self.0.key(id(ordinal)).into_owned()).collect())
    }

    /// The labels of the samples, in the source's order: one array, or a list of arrays if their shapes differ. `None` if it has
    /// none.
    fn labels(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let Some(labels) = py.detach(|| Labels::of(&*self.0)) else { return Ok(None) };
        let array = |shape: Vec<usize>, bytes: &[u8]| Array::owned(labels.dtype(), shape, bytes.to_vec());
        if let Some((shape, bytes)) = labels.uniform() {
            return Ok(Some(Py::new(py, array([&[self.__len__()], shape].concat(), bytes))?.into_any()));
        }
        let each = labels.each().map(|(shape, bytes)| array(shape.to_vec(), bytes));
        Ok(Some(each.collect::<Vec<_>>().into_pyobject(py)?.unbind()))
    }

    /// A short description: kind and place, such as `folder "data/train"`.
    fn describe(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.spec().map_or_else(|_| "array in memory".to_owned(), |table| described(&table)))
    }

    /// The table that names it in a plan.
    fn spec<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.0.spec().map_err(|error| source_error(py, error))?)
    }

    /// A hash of the names and places of its samples.
    #[getter]
    fn identity(&self) -> u128 {
        self.0.identity()
    }

    /// The name of a sample. `None` if there is no such sample.
    fn key(&self, index: u64) -> Option<String> {
        self.0.ordinal_of(SampleId(index)).map(|_| self.0.key(SampleId(index)).into_owned())
    }
}

/// A short description of a source, from its table in a plan.
fn described(table: &toml::Table) -> String {
    let kind = table.get("kind").and_then(toml::Value::as_str).unwrap_or_default();
    if let Some(toml::Value::Table(parent)) = table.get("of") {
        return format!("part of {}", described(parent));
    }
    let first = |value: &toml::Value| match value {
        // A source may have many shards. The first one is enough to recognise it.
        toml::Value::Array(list) if list.len() > 1 => format!("{} and {} more", list[0], list.len() - 1),
        toml::Value::Array(list) => list.first().map(ToString::to_string).unwrap_or_default(),
        other => other.to_string(),
    };
    let place = ["root", "path", "shards", "images"].iter().find_map(|key| table.get(*key)).map(first);
    place.map_or_else(|| kind.to_owned(), |place| format!("{kind} {place}"))
}

impl Source {
    fn part(&self, py: Python<'_>, part: Part) -> PyResult<Self> {
        let parent = Arc::clone(&self.0);
        let opened = py.detach(|| SubsetSource::new(parent, part));
        Ok(Self(Arc::new(opened.map_err(|error| source_error(py, error))?)))
    }
}
