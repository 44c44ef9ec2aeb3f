//! Samples straight from a source and its store, before the first op.
//!
//! Files are read in the preparer thread that needs them, into memory used again, and arrays straight into their slot.

use std::sync::Arc;

use super::{Cut, Ready, Supply, SupplyError, Wanted};
use crate::batch::{Buffer, Dtype, FieldTypes, Kind, Memory, Pixels, Sample, Tensor, Value};
use crate::engine::{NoMemory, Task, Workspace};
use crate::metrics::ReadMeter;
use crate::order::SampleId;
use crate::source::{Origin, Source};
use crate::store::{Room, StoreError};

/// A source read by this process.
#[derive(Debug)]
pub struct LocalSupply {
    source: Arc<dyn Source>,
    fields: Vec<LoadedField>,
}

#[derive(Debug)]
struct LoadedField {
    name: Arc<str>,
    kind: Kind,
    fixed: Option<(Dtype, Vec<usize>)>,
}

impl LocalSupply {
    /// Loads the given fields of a source.
    pub fn new(source: Arc<dyn Source>, fields: &FieldTypes) -> Self {
        let field = |(name, kind): (&Arc<str>, &Kind)| LoadedField {
            name: Arc::clone(name),
            kind: kind.clone(),
            fixed: kind.fixed(),
        };
        Self { source, fields: fields.iter().map(field).collect() }
    }
}

impl Supply for LocalSupply {
    fn request(&self, tasks: Vec<Task>, ready: &Arc<dyn Ready>) {
        ready.ready(tasks);
    }

    fn load(
        &self,
        wanted: Wanted,
        sample: &mut Sample<'_>,
        workspace: &mut Workspace,
        meter: &ReadMeter,
    ) -> Result<Cut, SupplyError> {
        let id = wanted.id;
        for LoadedField { name, kind, fixed } in &self.fields {
            let origin = self.source.origin(id, name);
            let Some((dtype, shape)) = fixed else {
                let mut room = BufferRoom { workspace, buffer: None };
                meter.time(|| match origin {
                    Origin::Whole { store, name } => store.read(name, &mut room),
                    Origin::Part { object, range } => {
                        let len = range.end.saturating_sub(range.start) as usize;
                        object.read_at(range.start, room.room(len)?)
                    }
                    Origin::Made => unreachable!("what a source makes has a fixed shape: see check_source"),
                })?;
                let memory = Memory::Heap(room.buffer.unwrap_or_default());
                meter.add_bytes(memory.len());
                let value = match kind {
                    Kind::Text => text(&memory).ok_or_else(|| not_text(&*self.source, id, name))?,
                    _ => Value::Bytes(memory),
                };
                sample.put(name, value);
                continue;
            };
            let mut memory = sample.output(name, *dtype, shape, workspace)?;
            match origin {
                Origin::Part { object, range } => {
                    meter.time(|| object.read_at(range.start, &mut memory))?;
                    meter.add_bytes(memory.len());
                }
                Origin::Made => self.source.make(id, name, &mut memory),
                Origin::Whole { .. } => unreachable!("a whole object has no fixed shape"),
            }
            sample.put(name, value(kind, *dtype, shape, memory));
        }
        Ok(Cut(0))
    }
}

fn text(bytes: &[u8]) -> Option<Value<'static>> {
    Some(Value::Text(str::from_utf8(bytes).ok()?.to_owned()))
}

fn not_text(source: &dyn Source, id: SampleId, field: &str) -> StoreError {
    let path = source.address(id).map(|(path, _)| path).unwrap_or_default();
    StoreError::Content { path, problem: format!("holds a field {field:?} that is not UTF-8 text") }
}

fn value<'s>(kind: &Kind, dtype: Dtype, shape: &[usize], memory: Memory<'s>) -> Value<'s> {
    match kind {
        Kind::Pixels(pixels) => {
            let (height, width) = (shape[0] as u32, shape[1] as u32);
            Value::Pixels(Pixels::packed(memory, width, height, pixels.channels, pixels.is_mask))
        }
        _ => Value::Tensor(Tensor::new(dtype, shape.to_vec(), memory)),
    }
}

/// A buffer of the thread, taken when the length is known.
struct BufferRoom<'a> {
    workspace: &'a mut Workspace,
    buffer: Option<Buffer>,
}

impl Room for BufferRoom<'_> {
    fn room(&mut self, len: usize) -> Result<&mut [u8], NoMemory> {
        let buffer = self.buffer.insert(self.workspace.buffer(len)?);
        Ok(buffer.as_mut_slice())
    }
}
