//! Batches as arrays that share the engine's memory.

use feedline_data::batch::{Batch, FieldData, Unslotted};
use feedline_data::dtype::Dtype;
use feedline_memory::Span;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

/// Memory of the engine that `NumPy` views without a copy. It lives as long as any array over it.
#[pyclass(frozen, module = "feedline._feedline")]
pub struct Array {
    #[expect(dead_code, reason = "held, not read: it keeps the memory alive")]
    memory: BatchMemory,
    address: usize,
    dtype: Dtype,
    shape: Vec<usize>,
}

enum BatchMemory {
    #[expect(dead_code, reason = "held, not read")]
    Span(Span),
    #[expect(dead_code, reason = "held, not read")]
    Heap(Vec<u8>),
}

impl Array {
    /// An array over memory of its own.
    pub fn owned(dtype: Dtype, shape: Vec<usize>, mut bytes: Vec<u8>) -> Self {
        let address = bytes.as_mut_ptr() as usize;
        Self { memory: BatchMemory::Heap(bytes), address, dtype, shape }
    }
}

#[pymethods]
impl Array {
    /// The protocol of `numpy.asarray`: address, shape and element type. The array is writable.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        // The second item says whether the memory is read-only.
        interface.set_item("data", (self.address, false))?;
        interface.set_item("shape", PyTuple::new(py, &self.shape)?)?;
        interface.set_item("typestr", typestr(self.dtype))?;
        Ok(interface)
    }

    /// The name of the element type. `NumPy` has no bfloat16 and sees it as uint16.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }
}

fn typestr(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bool => "|b1",
        Dtype::U8 => "|u1",
        Dtype::I8 => "|i1",
        Dtype::U16 | Dtype::BF16 => "<u2",
        Dtype::I16 => "<i2",
        Dtype::U32 => "<u4",
        Dtype::I32 => "<i4",
        Dtype::U64 => "<u8",
        Dtype::I64 => "<i8",
        Dtype::F16 => "<f2",
        Dtype::F32 => "<f4",
        Dtype::F64 => "<f8",
    }
}

/// An array over a region of a slab.
pub(crate) fn region(py: Python<'_>, span: Span, dtype: Dtype, shape: Vec<usize>) -> PyResult<Bound<'_, Array>> {
    // The address stays valid: moving a `Span` moves only its handle, not the memory.
    let address = span.start().as_ptr() as usize;
    Bound::new(py, Array { memory: BatchMemory::Span(span), address, dtype, shape })
}

/// A batch as a list of (name, array | list of arrays | list of texts).
pub(crate) fn to_python(py: Python<'_>, batch: Batch) -> PyResult<Bound<'_, PyList>> {
    let fields = PyList::empty(py);
    for field in batch.fields {
        let data = match field.data {
            FieldData::Region { span, dtype, shape } => region(py, span, dtype, shape)?.into_any(),
            FieldData::Stacked { dtype, shape, bytes } => Bound::new(py, Array::owned(dtype, shape, bytes))?.into_any(),
            FieldData::List(values) => {
                let list = PyList::empty(py);
                for value in values {
                    match value {
                        Unslotted::Text(text) => list.append(text)?,
                        Unslotted::Array { dtype, shape, bytes } => list.append(Array::owned(dtype, shape, bytes))?,
                    }
                }
                list.into_any()
            }
        };
        fields.append((&*field.name, data))?;
    }
    Ok(fields)
}
