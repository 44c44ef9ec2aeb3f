//! Samples straight from a source and its store, before the first op.
//!
//! Files are read in the preparer thread that needs them, into memory used again, and arrays straight into their slot. Of a
//! picture that is decoded and then cropped only the bytes of the crop are read, where its seek index is known.

use std::ops::Range;
use std::sync::Arc;

use feedline_codec::read_header;

use super::seek::{Found, SeekIndexes, stamp};
use super::volumes::Volumes;
use super::{Cut, Reading, Ready, Supply, SupplyError, Wanted};
use crate::batch::{Buffer, Dtype, Encoded, Kind, Memory, Pixels, Sample, Tensor, Value};
use crate::engine::{NoMemory, Task, Workspace};
use crate::metrics::Metrics;
use crate::op::{Decoding, Need};
use crate::order::SampleId;
use crate::plan::{Plan, SeekIndexUse};
use crate::sink::Machine;
use crate::source::{Origin, Source};
use crate::store::{Object, Room, StoreError};

/// A source read by this process.
#[derive(Debug)]
pub struct LocalSupply {
    plan: Arc<Plan>,
    source: Arc<dyn Source>,
    fields: Vec<LoadedField>,
    volumes: Volumes,
}

#[derive(Debug)]
struct LoadedField {
    name: Arc<str>,
    kind: Kind,
    fixed: Option<(Dtype, Vec<usize>)>,
    trim: Option<Trim>,
}

/// A field whose pictures are decoded, of which a later op may need a part only.
#[derive(Debug)]
struct Trim {
    decoder: usize,
    decoding: Decoding,
    indexes: SeekIndexes,
}

impl LocalSupply {
    /// Loads what a plan needs of its source.
    pub fn new(plan: Arc<Plan>, machine: &Machine) -> Self {
        let source = Arc::clone(plan.source());
        let uses_indexes = plan.config().seek_index == SeekIndexUse::Auto;
        let trim = |name: &str| {
            let (decoder, decoding) = plan.decoder_of(name).filter(|_| uses_indexes)?;
            let indexes = SeekIndexes::new(&*source, name, machine.cache_folder.as_deref());
            Some(Trim { decoder, decoding, indexes })
        };
        let field = |(name, kind): (&Arc<str>, &Kind)| LoadedField {
            name: Arc::clone(name),
            kind: kind.clone(),
            fixed: kind.fixed(),
            trim: trim(name),
        };
        let is_volume = |(_, kind): &(&Arc<str>, &Kind)| matches!(kind, Kind::Volume(_));
        let fields = plan.loaded().iter().filter(|entry| !is_volume(entry)).map(field).collect();
        let volumes = Volumes::new(&plan, machine.cache_folder.as_deref());
        Self { plan, source, fields, volumes }
    }

    /// Reads the bytes of a picture that a crop of it needs, or all of them.
    fn read_trimmed<'s>(
        &self,
        field: &LoadedField,
        trim: &Trim,
        (wanted, reading): (Wanted, Reading),
        workspace: &mut Workspace,
        metrics: &Metrics,
    ) -> Result<Encoded<'s>, SupplyError> {
        let opened = self.source.origin(wanted.id, &field.name).open()?;
        let (object, all) = opened.expect("what a source makes has a fixed shape: see check_source");
        let stamp = stamp(&*object, &all);
        let found = trim.indexes.find(&*self.source, wanted.id, stamp)?;
        if let Found::Index(index) = &found
            && reading == Reading::Trimmed
        {
            let header = index.header();
            let need = self.need(field, trim, wanted, &header);
            let range = need.and_then(|need| {
                let options = trim.decoding.options(Some(need), &|| false);
                index.bytes_for(trim.decoding.crop(&header, need), &options).ok()
            });
            let in_object = range.as_ref().map(|range| all.start + range.start..all.start + range.end);
            if let Some((range, in_object)) = range.zip(in_object).filter(|(_, range)| range.end <= all.end) {
                let memory = read_range(&*object, in_object, workspace, metrics)?;
                metrics.seek.add_used();
                let Found::Index(index) = found else { unreachable!("it was found") };
                return Ok(Encoded { memory, offset: range.start, is_whole: false, index: Some(index) });
            }
        }
        let memory = read_range(&*object, all, workspace, metrics)?;
        let index = match found {
            // All of the file is wanted, or the index is that of another one.
            Found::Index(index) if index.fits(&memory) => Some(index),
            Found::NotSeekable => None,
            Found::Index(_) | Found::Unknown => {
                let header = read_header(&memory).ok();
                let is_cropped = header.is_some_and(|header| self.need(field, trim, wanted, &header).is_some());
                let make = || trim.indexes.make(wanted.id, stamp, &memory, &metrics.seek);
                if is_cropped { make() } else { None }
            }
        };
        Ok(Encoded { memory, offset: 0, is_whole: true, index })
    }

    fn need(&self, field: &LoadedField, trim: &Trim, wanted: Wanted, header: &feedline_codec::Header) -> Option<Need> {
        self.plan.ahead(trim.decoder, wanted).need(&field.name, trim.decoding.facts(header))
    }
}

impl Supply for LocalSupply {
    fn request(&self, tasks: Vec<Task>, ready: &Arc<dyn Ready>) {
        ready.ready(tasks);
    }

    fn load(
        &self,
        wanted: Wanted,
        reading: Reading,
        sample: &mut Sample<'_>,
        workspace: &mut Workspace,
        metrics: &Metrics,
    ) -> Result<Cut, SupplyError> {
        let id = wanted.id;
        for field in &self.fields {
            let LoadedField { name, kind, fixed, trim } = field;
            let Some((dtype, shape)) = fixed else {
                let encoded = match trim {
                    Some(trim) if reading != Reading::Plain => {
                        self.read_trimmed(field, trim, (wanted, reading), workspace, metrics)?
                    }
                    _ => read_whole(self.source.origin(id, name), workspace, metrics)?.into(),
                };
                let value = match kind {
                    Kind::Text => text(&encoded.memory).ok_or_else(|| not_text(&*self.source, id, name))?,
                    _ => Value::Bytes(encoded),
                };
                sample.put(name, value);
                continue;
            };
            let mut memory = sample.output(name, *dtype, shape, workspace)?;
            match self.source.origin(id, name) {
                Origin::Part { object, range } => {
                    metrics.read.time(|| object.read_at(range.start, &mut memory))?;
                    metrics.read.add_bytes(memory.len());
                }
                Origin::Made => self.source.make(id, name, &mut memory),
                Origin::Whole { .. } => unreachable!("a whole object has no fixed shape"),
            }
            sample.put(name, value(kind, *dtype, shape, memory));
        }
        self.volumes.load(&self.plan, (wanted, reading), sample, workspace, metrics)?;
        Ok(Cut(0))
    }
}

fn read_whole<'s>(origin: Origin<'_>, workspace: &mut Workspace, metrics: &Metrics) -> Result<Memory<'s>, SupplyError> {
    match origin {
        Origin::Whole { store, name } => {
            let mut room = BufferRoom { workspace, buffer: None };
            metrics.read.time(|| store.read(name, &mut room))?;
            let memory = Memory::Heap(room.buffer.unwrap_or_default());
            metrics.read.add_bytes(memory.len());
            Ok(memory)
        }
        Origin::Part { object, range } => read_range(&*object, range, workspace, metrics),
        Origin::Made => unreachable!("what a source makes has a fixed shape: see check_source"),
    }
}

fn read_range<'s>(
    object: &dyn Object,
    range: Range<u64>,
    workspace: &mut Workspace,
    metrics: &Metrics,
) -> Result<Memory<'s>, SupplyError> {
    let mut buffer = workspace.buffer((range.end.saturating_sub(range.start)) as usize).map_err(StoreError::from)?;
    metrics.read.time(|| object.read_at(range.start, buffer.as_mut_slice()))?;
    metrics.read.add_bytes(buffer.as_slice().len());
    Ok(Memory::Heap(buffer))
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

fn text(bytes: &[u8]) -> Option<Value<'static>> {
    Some(Value::Text(str::from_utf8(bytes).ok()?.to_owned()))
}

fn not_text(source: &dyn Source, id: SampleId, field: &str) -> StoreError {
    let path = source.address(id).map(|(path, _)| path).unwrap_or_default();
    StoreError::Content { path, problem: format!("holds a field {field:?} that is not UTF-8 text") }
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
