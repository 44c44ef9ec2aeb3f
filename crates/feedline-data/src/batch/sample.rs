//! A sample in preparation: its named fields, and the slot of each.
//!
//! In: the memory of one slot. Out: the filled slot, and separate values for fields without a fixed shape. An op that computes the
//! final array of a field requests memory with [`Sample::output`] and gets the slot itself, so nothing is collated later.

use std::sync::Arc;

use super::{Memory, Pixels, Tensor, Value, Volume};
use crate::dtype::{Dtype, array_bytes};
use crate::memory::{NoMemory, Workspace};

/// A sample in preparation.
#[derive(Debug, Default)]
pub struct Sample<'s> {
    fields: Vec<SampleField<'s>>,
    /// Whether [`Sample::finish`] returns all values instead of moving some to their slots.
    is_apart: bool,
}

#[derive(Debug)]
struct SampleField<'s> {
    name: Arc<str>,
    value: Option<Value<'s>>,
    slot: Option<Slot<'s>>,
}

/// The destination of a field with a fixed shape.
#[derive(Debug)]
pub struct Slot<'s> {
    /// The element type that the plan promises.
    pub dtype: Dtype,
    /// The shape that the plan promises.
    pub shape: &'s [usize],
    /// Its bytes. `None` while a value holds them.
    pub bytes: Option<&'s mut [u8]>,
}

/// A delivered value without a slot, because it has no fixed shape.
#[derive(Clone, Debug, PartialEq)]
pub enum Unslotted {
    /// An array with its own shape.
    Array {
        /// Element type.
        dtype: Dtype,
        /// Sides, outermost first.
        shape: Vec<usize>,
        /// The elements.
        bytes: Vec<u8>,
    },
    /// Text.
    Text(String),
}

impl Unslotted {
    /// Size of the content in bytes.
    pub fn content_bytes(&self) -> usize {
        match self {
            Self::Array { bytes, .. } => bytes.len(),
            Self::Text(text) => text.len(),
        }
    }
}

/// Why an op rejects a field.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum FieldError {
    #[error("the sample has no field {name:?}")]
    Missing { name: String },
    #[error("field {name:?} is {has}, not {needs}")]
    Kind { name: String, has: &'static str, needs: &'static str },
    #[error("field {name:?} is {has}, but the op needs {needs}")]
    Unfit { name: String, has: String, needs: &'static str },
    #[error("field {name:?} is {has_dtype} {has_shape:?}, but the plan promised {dtype} {shape:?}")]
    Promise { name: String, has_dtype: &'static str, has_shape: Vec<usize>, dtype: &'static str, shape: Vec<usize> },
    #[error("an array of {dtype} {shape:?} does not fit into memory")]
    TooLarge { dtype: &'static str, shape: Vec<usize> },
}

impl<'s> Sample<'s> {
    /// A sample without fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// A sample whose slots have no bytes. [`Sample::finish`] returns all its values, in the form in which they would be delivered.
    pub fn apart() -> Self {
        Self { is_apart: true, ..Self::default() }
    }

    /// Adds a field, with its slot if its shape is fixed.
    pub fn declare(&mut self, name: &Arc<str>, slot: Option<Slot<'s>>) {
        self.fields.push(SampleField { name: Arc::clone(name), value: None, slot });
    }

    fn field(&mut self, name: &str) -> Result<&mut SampleField<'s>, FieldError> {
        self.fields
            .iter_mut()
            .find(|field| &*field.name == name)
            .ok_or_else(|| FieldError::Missing { name: name.to_owned() })
    }

    /// Takes the value out of a field. [`Sample::put`] puts one back.
    pub fn take(&mut self, name: &str) -> Result<Value<'s>, FieldError> {
        self.field(name)?.value.take().ok_or_else(|| FieldError::Missing { name: name.to_owned() })
    }

    /// A field's value.
    pub fn get(&mut self, name: &str) -> Result<&mut Value<'s>, FieldError> {
        self.field(name)?.value.as_mut().ok_or_else(|| FieldError::Missing { name: name.to_owned() })
    }

    /// The fields that have a value.
    pub fn values(&self) -> impl Iterator<Item = (&str, &Value<'s>)> {
        self.fields.iter().filter_map(|field| Some((&*field.name, field.value.as_ref()?)))
    }

    /// Takes out a picture or mask.
    pub(crate) fn take_pixels(&mut self, name: &str) -> Result<Pixels<'s>, FieldError> {
        match self.take(name)? {
            Value::Pixels(pixels) if !pixels.is_deep => Ok(pixels),
            other => Err(FieldError::Kind { name: name.to_owned(), has: other.describe(), needs: "pixels" }),
        }
    }

    /// Takes out a picture of 8 or 16 bits a channel.
    pub(crate) fn take_any_pixels(&mut self, name: &str) -> Result<Pixels<'s>, FieldError> {
        match self.take(name)? {
            Value::Pixels(pixels) => Ok(pixels),
            other => Err(FieldError::Kind { name: name.to_owned(), has: other.describe(), needs: "pixels" }),
        }
    }

    /// Takes out a tensor.
    pub(crate) fn take_tensor(&mut self, name: &str) -> Result<Tensor<'s>, FieldError> {
        match self.take(name)? {
            Value::Tensor(tensor) => Ok(tensor),
            other => Err(FieldError::Kind { name: name.to_owned(), has: other.describe(), needs: "a tensor" }),
        }
    }

    /// Takes out a volume.
    pub(crate) fn take_volume(&mut self, name: &str) -> Result<Volume<'s>, FieldError> {
        match self.take(name)? {
            Value::Volume(volume) => Ok(volume),
            other => Err(FieldError::Kind { name: name.to_owned(), has: other.describe(), needs: "a volume" }),
        }
    }

    /// Sets the value of a field. Adds the field if the plan does not know it.
    pub fn put(&mut self, name: &str, value: Value<'s>) {
        match self.field(name) {
            Ok(field) => {
                // A load that is repeated replaces a value that may hold the slot. The slot must not be lost with it.
                let old = field.value.replace(value);
                if let Some(Memory::Slot(bytes)) = old.and_then(Value::into_memory)
                    && let Some(slot) = field.slot.as_mut()
                {
                    slot.bytes = Some(bytes);
                }
            }
            // A user's function may return fields that the plan does not know.
            Err(_) => self.fields.push(SampleField { name: name.into(), value: Some(value), slot: None }),
        }
    }

    /// Memory for a new array of field `name`: its slot if the array has the delivered shape, otherwise a buffer.
    pub fn output(
        &mut self,
        name: &str,
        dtype: Dtype,
        shape: &[usize],
        workspace: &mut Workspace,
    ) -> Result<Memory<'s>, OutputError> {
        let slot = self.field(name).ok().and_then(|field| field.slot.as_mut());
        // The op writes straight into the batch if its result has the delivered form and no other value holds the slot.
        if let Some(slot) = slot.filter(|slot| slot.dtype == dtype && slot.shape == shape)
            && let Some(bytes) = slot.bytes.take()
        {
            return Ok(Memory::Slot(bytes));
        }
        let bytes = array_bytes(dtype, shape)
            .ok_or_else(|| FieldError::TooLarge { dtype: dtype.name(), shape: shape.to_vec() })?;
        Ok(Memory::Heap(workspace.buffer(bytes)?))
    }

    /// Returns memory that is no longer needed: heap memory to the thread, a slot to its field.
    pub fn give_back(&mut self, name: &str, memory: Memory<'s>, workspace: &mut Workspace) {
        match memory {
            Memory::Heap(buffer) => workspace.recycle(buffer),
            // The slot is free again for the op that computes the final array.
            Memory::Slot(bytes) => {
                if let Some(slot) = self.field(name).ok().and_then(|field| field.slot.as_mut()) {
                    slot.bytes = Some(bytes);
                }
            }
        }
    }

    /// Moves the value of each field to its slot. Returns the values of fields without a slot, in the order of declaration. A field
    /// without a value is an error.
    pub fn finish(self, workspace: &mut Workspace) -> Result<Vec<Unslotted>, FieldError> {
        let mut unslotted = Vec::new();
        for field in self.fields {
            let missing = || FieldError::Missing { name: field.name.to_string() };
            let value = field.value.ok_or_else(missing)?;
            match field.slot {
                Some(slot) => {
                    check_promise(&field.name, &value, &slot)?;
                    if self.is_apart {
                        unslotted.push(into_unslotted(value));
                    } else {
                        deliver(value, slot, workspace);
                    }
                }
                None => unslotted.push(into_unslotted(value)),
            }
        }
        Ok(unslotted)
    }

    /// Drops fields that are not in `names`, and returns their memory.
    pub fn retain(&mut self, names: &[Arc<str>], workspace: &mut Workspace) {
        // A dropped field is not delivered, so it has no slot: only heap memory has to be returned.
        for field in self.fields.extract_if(.., |field| !names.contains(&field.name)) {
            if let Some(value) = field.value {
                recycle(value, workspace);
            }
        }
    }
}

/// Why there is no memory for an op's result.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the causes say it")]
pub enum OutputError {
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error(transparent)]
    Memory(#[from] NoMemory),
}

fn check_promise(name: &str, value: &Value<'_>, slot: &Slot<'_>) -> Result<(), FieldError> {
    let Some((dtype, shape)) = value.array() else {
        return Err(FieldError::Kind { name: name.to_owned(), has: value.describe(), needs: "an array" });
    };
    // The slot was allocated for the planned shape. Another one would overflow or leave a gap.
    if dtype != slot.dtype || shape != slot.shape {
        return Err(FieldError::Promise {
            name: name.to_owned(),
            has_dtype: dtype.name(),
            has_shape: shape,
            dtype: slot.dtype.name(),
            shape: slot.shape.to_vec(),
        });
    }
    Ok(())
}

fn deliver(value: Value<'_>, slot: Slot<'_>, workspace: &mut Workspace) {
    // If the slot has no bytes left, a value holds them, and it must be this one. Otherwise this value is copied into the slot.
    let is_delivered = match (&value, slot.bytes) {
        (
            Value::Pixels(Pixels { memory, .. })
            | Value::Volume(Volume { memory, .. })
            | Value::Tensor(Tensor { memory, .. }),
            None,
        ) => matches!(memory, Memory::Slot(_)),
        (Value::Pixels(pixels), Some(target)) => {
            pixels.copy_to(target);
            true
        }
        (Value::Volume(Volume { memory, .. }) | Value::Tensor(Tensor { memory, .. }), Some(target)) => {
            target.copy_from_slice(memory);
            true
        }
        (Value::Bytes(_) | Value::Text(_), _) => false,
    };
    assert!(is_delivered, "an op that replaces a value gives its memory back: see Sample::give_back");
    recycle(value, workspace);
}

fn into_unslotted(value: Value<'_>) -> Unslotted {
    let owned = |memory: Memory<'_>| match memory {
        // Reused memory may be longer than its content.
        Memory::Heap(buffer) => buffer.into_exact(),
        Memory::Slot(slot) => slot.to_vec(),
    };
    match value {
        Value::Text(text) => Unslotted::Text(text),
        Value::Bytes(super::Encoded { memory, .. }) => {
            Unslotted::Array { dtype: Dtype::U8, shape: vec![memory.len()], bytes: owned(memory) }
        }
        Value::Volume(volume) => {
            Unslotted::Array { dtype: volume.dtype, shape: volume.shape(), bytes: owned(volume.memory) }
        }
        Value::Tensor(tensor) => {
            Unslotted::Array { dtype: tensor.dtype, shape: tensor.shape, bytes: owned(tensor.memory) }
        }
        Value::Pixels(pixels) => {
            let (dtype, shape) = (pixels.dtype(), pixels.shape());
            let bytes = if pixels.is_packed() {
                owned(pixels.memory)
            } else {
                let mut bytes = vec![0; pixels.packed_bytes()];
                pixels.copy_to(&mut bytes);
                bytes
            };
            Unslotted::Array { dtype, shape, bytes }
        }
    }
}

fn recycle(value: Value<'_>, workspace: &mut Workspace) {
    let memory = match value {
        Value::Text(_) => return,
        Value::Bytes(encoded) => encoded.memory,
        Value::Pixels(pixels) => pixels.memory,
        Value::Volume(volume) => volume.memory,
        Value::Tensor(tensor) => tensor.memory,
    };
    if let Memory::Heap(buffer) = memory {
        workspace.recycle(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{BatchNeed, Budget, Cancel, Patience};

    #[test]
    fn a_load_that_is_repeated_still_delivers_into_the_slot() {
        let mut workspace = Workspace::new(Cancel::default(), 1 << 20);
        let budget = Budget::new(1 << 20);
        workspace.begin(budget.begin(BatchNeed { run: 0, batch: 0 }, 0, Patience::Waits), 0).unwrap();
        let mut memory = [0_u8; 4];
        let name: Arc<str> = "data".into();
        let mut sample = Sample::new();
        sample.declare(&name, Some(Slot { dtype: Dtype::U8, shape: &[4], bytes: Some(&mut memory) }));
        for byte in [1, 2] {
            let mut output = sample.output(&name, Dtype::U8, &[4], &mut workspace).unwrap();
            output.fill(byte);
            sample.put(&name, Value::Tensor(Tensor::new(Dtype::U8, vec![4], output)));
        }
        assert!(sample.finish(&mut workspace).unwrap().is_empty());
        assert_eq!(memory, [2; 4], "the second load counts");
    }
}
