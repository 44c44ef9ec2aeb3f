//! Values of fields, as functions get and return them.

use std::borrow::Cow;

use feedline_data::batch::{Kind, Memory, Pixels, Tensor, Value, Volume};
use feedline_data::dtype::Dtype;
use feedline_net::worker::FunctionValue;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::batch::Array;
use crate::convert;

/// The argument for a field: an array in row-major order, bytes, or text.
pub(crate) fn plain<'a>(value: &'a Value<'_>) -> FunctionValue<'a> {
    let array = |dtype, shape, bytes| FunctionValue::Array { dtype, shape, bytes };
    match value {
        Value::Bytes(encoded) => FunctionValue::Bytes(Cow::Borrowed(&encoded.memory)),
        Value::Text(text) => FunctionValue::Text(Cow::Borrowed(text)),
        Value::Volume(volume) => array(volume.dtype, volume.shape(), Cow::Borrowed(&*volume.memory)),
        Value::Tensor(tensor) => array(tensor.dtype, tensor.shape.clone(), Cow::Borrowed(&*tensor.memory)),
        Value::Pixels(pixels) => {
            let mut bytes = vec![0; pixels.packed_bytes()];
            pixels.copy_to(&mut bytes);
            array(pixels.dtype(), pixels.shape(), bytes.into())
        }
    }
}

/// The argument for a field as a Python object. Arrays are copies that belong to the function.
pub(crate) fn argument<'py>(py: Python<'py>, value: &FunctionValue<'_>) -> PyResult<Bound<'py, PyAny>> {
    match value {
        FunctionValue::Bytes(bytes) => Ok(PyBytes::new(py, bytes).into_any()),
        FunctionValue::Text(text) => Ok(PyString::new(py, text).into_any()),
        FunctionValue::Array { dtype, shape, bytes } => {
            let array = Array::owned(*dtype, shape.clone(), bytes.to_vec());
            py.import("numpy")?.getattr("asarray")?.call1((array,))
        }
    }
}

/// The results of a function on the engine's threads, which `SampleFunction.results` has made plain.
pub(crate) fn returned(results: &Bound<'_, PyAny>) -> PyResult<Vec<FunctionValue<'static>>> {
    let plain = |result: PyResult<Bound<'_, PyAny>>| -> PyResult<FunctionValue<'static>> {
        let result = result?;
        if let Ok(text) = result.cast::<PyString>() {
            return Ok(FunctionValue::Text(text.extract::<String>()?.into()));
        }
        if let Ok(bytes) = result.cast::<PyBytes>() {
            return Ok(FunctionValue::Bytes(bytes.as_bytes().to_vec().into()));
        }
        let dtype = convert::dtype(&result.getattr("dtype")?.getattr("name")?.extract::<String>()?)?;
        let shape: Vec<usize> = result.getattr("shape")?.extract()?;
        let bytes = result.call_method0("tobytes")?.cast::<PyBytes>()?.as_bytes().to_vec();
        Ok(FunctionValue::Array { dtype, shape, bytes: bytes.into() })
    };
    results.try_iter()?.map(plain).collect()
}

/// The new value of a field that was `old` before. A uint8 array with the shape of a picture becomes one. A 2D uint8 array in place of
/// a mask stays a mask. A 4D array in place of a volume stays a volume. Other arrays become tensors.
pub(crate) fn value_of(result: FunctionValue<'static>, old: Option<&Value<'_>>) -> Value<'static> {
    let (dtype, shape, memory) = match result {
        FunctionValue::Text(text) => return Value::Text(text.into_owned()),
        FunctionValue::Bytes(bytes) => return Value::Bytes(Memory::from(bytes.into_owned()).into()),
        FunctionValue::Array { dtype, shape, bytes } => (dtype, shape, Memory::from(bytes.into_owned())),
    };
    let was_mask = matches!(old, Some(Value::Pixels(pixels)) if pixels.is_mask);
    match (Kind::of_array(dtype, &shape), &shape[..]) {
        (Kind::Pixels(kind), &[height, width, _]) => {
            Value::Pixels(Pixels::packed(memory, width as u32, height as u32, kind.channels, false))
        }
        (_, &[height, width]) if was_mask && dtype == Dtype::U8 => {
            Value::Pixels(Pixels::packed(memory, width as u32, height as u32, 1, true))
        }
        (_, &[channels, depth, height, width]) if let Some(Value::Volume(old)) = old => {
            let sides = [depth, height, width];
            let volume = Volume::packed(memory, dtype, channels, sides, old.is_label);
            // The voxel spacing is only valid if the function kept the shape.
            Value::Volume(volume.with_spacing(old.spacing.filter(|_| old.sides == sides)))
        }
        _ => Value::Tensor(Tensor::new(dtype, shape, memory)),
    }
}
