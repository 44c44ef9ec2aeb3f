//! Loads the fields of samples from a source and its store. No op has run on them yet.
//!
//! The preparer thread that needs a file reads it, into a reused buffer. Arrays are read straight into their slot. If a crop
//! follows the decoder of a picture and its seek index is known, only the bytes of the crop are read.

use std::ops::Range;
use std::sync::Arc;

use feedline_codec::read_header;
use feedline_data::batch::{Encoded, EncodedContent, Kind, Memory, Pixels, Tensor, Value};
use feedline_data::cut::Cut;
use feedline_data::dtype::Dtype;
use feedline_data::memory::{Buffer, NoMemory, Workspace};
use feedline_data::op::{Decoding, Need, WorkHint};
use feedline_data::plan::{Plan, SeekIndexUse};
use feedline_data::source::{OpenPart, Origin, Source, stamp};
use feedline_data::store::{BufferSource, Object, StoreError};
use feedline_memory::SlotWriter;
use feedline_order::{Place, SampleId, SampleRequest};

use super::reader::{Part, Reader};
use super::rows::Rows;
use super::seek::{IndexLookup, Keeper, SeekIndexes};
use super::volumes::Volumes;
use super::{Reading, Ready, Supply, SupplyError};
use crate::machine::Machine;
use crate::metrics::Metrics;
use crate::supply::{Loading, Task};

/// Loads samples in this process.
#[derive(Debug)]
pub struct LocalSupply {
    plan: Arc<Plan>,
    source: Arc<dyn Source>,
    fields: Vec<LoadedField>,
    volumes: Volumes,
    /// Set if samples are copied to their slots as they are.
    rows: Option<Rows>,
}

#[derive(Debug)]
struct LoadedField {
    name: Arc<str>,
    kind: Kind,
    /// Element type and shape, if all samples have the same.
    fixed: Option<(Dtype, Vec<usize>)>,
    /// Set for encoded pictures, if the plan uses seek indexes.
    trim: Option<Trim>,
}

/// Where a picture is stored, and which of its bytes are needed.
struct Sought {
    object: Arc<dyn Object>,
    /// The range of the whole picture in its object.
    all: Range<u64>,
    stamp: u64,
    found: IndexLookup,
    /// The needed part, counted from the start of the picture. `None` without an index, or if the whole picture is needed.
    needed: Option<Range<u64>>,
}

/// A field with encoded pictures, of which a later op may need only a part.
#[derive(Debug)]
struct Trim {
    /// The number of the op that decodes the field.
    decoder: usize,
    decoding: Decoding,
    indexes: Arc<SeekIndexes>,
}

impl LocalSupply {
    /// A supply for the fields that a plan loads.
    pub fn new(plan: Arc<Plan>, machine: &Machine) -> Self {
        let source = Arc::clone(plan.source());
        let uses_indexes = plan.config().seek_index == SeekIndexUse::Auto;
        let trim = |name: &str| {
            let (decoder, decoding) = plan.chain().decoder_of(name).filter(|_| uses_indexes)?;
            let indexes = SeekIndexes::new(&*source, name, machine.cache_folder.as_ref()).into();
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
        let volumes = Volumes::new(&plan, machine.cache_folder.as_ref());
        let rows = Rows::of(&plan);
        Self { plan, source, fields, volumes, rows }
    }

    /// The bytes of stored fields that a sample will need, as far as they are known before reading.
    pub(super) fn needs(&self, request: SampleRequest, reading: Reading) -> Result<Vec<OpenPart>, StoreError> {
        let mut parts = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            let part = match &field.trim {
                Some(trim) if reading != Reading::Plain && field.fixed.is_none() => {
                    let Sought { object, all, needed, .. } = self.seek(field, trim, request, reading)?;
                    let range = needed.map_or(all.clone(), |needed| within(&all, &needed));
                    Some((object, range))
                }
                _ => match self.source.origin(request.id, &field.name) {
                    // Opening the object would wait for a request of its own. It is read when its sample is loaded.
                    Origin::Whole { store, .. } if !store.is_near() => None,
                    origin => origin.open()?,
                },
            };
            parts.extend(part);
        }
        Ok(parts)
    }

    /// The local bytes that a sample will need: those of [`Self::needs`], and those of its volumes.
    pub(super) fn local_needs(
        &self,
        request: SampleRequest,
        workspace: &mut Workspace,
        metrics: &Metrics,
    ) -> Result<Vec<OpenPart>, SupplyError> {
        let mut parts = self.needs(request, Reading::Trimmed)?;
        parts.extend(self.volumes.needs(&self.plan, request, workspace, metrics)?);
        Ok(parts)
    }

    /// Locates a picture and the bytes that its crop needs.
    fn seek(
        &self,
        field: &LoadedField,
        trim: &Trim,
        request: SampleRequest,
        reading: Reading,
    ) -> Result<Sought, StoreError> {
        let opened = self.source.origin(request.id, &field.name).open()?;
        let (object, all) = opened.expect("a source knows the shape of what it generates: see check_source");
        let stamp = stamp(&*object, &all);
        let found = trim.indexes.find(&*self.source, request.id, stamp)?;
        let mut needed = None;
        if let IndexLookup::Index(index) = &found
            && reading == Reading::Trimmed
        {
            let header = index.header();
            let range = self.need(field, trim, request, &header).and_then(|need| {
                let options = trim.decoding.options(Some(need), &|| false);
                index.bytes_for(trim.decoding.crop(&header, need), &options).ok()
            });
            // An index of another version of the file may point past its end.
            needed = range.filter(|range| within(&all, range).end <= all.end);
        }
        Ok(Sought { object, all, stamp, found, needed })
    }

    /// Reads the bytes of a picture that its crop needs, or the whole picture.
    fn read_trimmed<'s>(
        &self,
        field: &LoadedField,
        trim: &Trim,
        request: SampleRequest,
        reading: Reading,
        reader: &Reader<'_>,
        workspace: &mut Workspace,
    ) -> Result<Encoded<'s>, SupplyError> {
        let sought = self.seek(field, trim, request, reading)?;
        let Sought { object, all, stamp, found, needed } = sought;
        let seek = &reader.metrics.seek;
        if let Some(needed) = needed {
            let memory = read_range(&*object, within(&all, &needed), reader, workspace)?;
            seek.add_used();
            let IndexLookup::Index(index) = found else { unreachable!("only an index tells which part is needed") };
            return Ok(Encoded { memory, content: EncodedContent::Part { offset: needed.start, index } });
        }
        let memory = read_range(&*object, all, reader, workspace)?;
        let content = match found {
            // The whole file was read, although there is an index: either all of it is needed, or the index belongs to another
            // version.
            IndexLookup::Index(index) if index.fits(&memory) => EncodedContent::Whole { index: Some(index) },
            IndexLookup::NotSeekable => EncodedContent::Whole { index: None },
            IndexLookup::Index(_) | IndexLookup::Unknown => {
                // Building an index pays only if a crop follows: without one the whole file is needed each time.
                let header = read_header(&memory).ok();
                let is_cropped = header.is_some_and(|header| self.need(field, trim, request, &header).is_some());
                if is_cropped && trim.indexes.has_room() {
                    let (indexes, meter) = (Arc::clone(&trim.indexes), Arc::clone(seek));
                    EncodedContent::Unindexed(Box::new(Keeper { indexes, meter, id: request.id, stamp }))
                } else {
                    EncodedContent::Whole { index: None }
                }
            }
        };
        let mut encoded = Encoded { memory, content };
        if reading == Reading::Complete {
            // It will be cached with its index.
            encoded.build_index();
        }
        Ok(encoded)
    }

    /// The part of a picture that the op after its decoder needs. `None` if it needs all.
    fn need(
        &self,
        field: &LoadedField,
        trim: &Trim,
        request: SampleRequest,
        header: &feedline_codec::Header,
    ) -> Option<Need> {
        self.plan.chain().ahead(trim.decoder, request).need(&field.name, trim.decoding.facts(header))
    }
}

impl Supply for LocalSupply {
    fn request(&self, tasks: Vec<Task>, ready: &Arc<dyn Ready>) {
        ready.ready(tasks);
    }

    fn work_hint(&self, request: SampleRequest) -> WorkHint {
        self.volumes.work_hint(&self.plan, request)
    }

    fn load(&self, loading: Loading<'_, '_>) -> Result<Cut, SupplyError> {
        self.load_with(&[], loading)
    }

    fn fills_rows(&self) -> bool {
        self.rows.is_some()
    }

    fn fill_rows(&self, samples: &[(Place, SampleRequest)], first: usize, writer: &mut SlotWriter) {
        let rows = self.rows.as_ref().expect("`fills_rows` was asked before");
        rows.fill(&*self.source, samples, first, writer);
    }
}

impl LocalSupply {
    /// Loads a sample, partly from bytes that were fetched ahead.
    pub(super) fn load_with(&self, parts: &[Part], mut loading: Loading<'_, '_>) -> Result<Cut, SupplyError> {
        let Loading { request, reading, ref mut sample, ref mut workspace, metrics } = loading;
        let id = request.id;
        let reader = Reader { parts, epoch: request.epoch, metrics };
        for field in &self.fields {
            let LoadedField { name, kind, fixed, trim } = field;
            // A generated field may have another shape in each sample, such as the boxes of a picture.
            let ragged = match kind {
                Kind::Tensor { dtype, .. } if fixed.is_none() => {
                    self.source.made_shape(id, name).map(|shape| (*dtype, shape))
                }
                _ => None,
            };
            let Some((dtype, shape)) = fixed.as_ref().or(ragged.as_ref()) else {
                let encoded = match trim {
                    Some(trim) if reading != Reading::Plain => {
                        self.read_trimmed(field, trim, request, reading, &reader, workspace)?
                    }
                    _ => read_whole(self.source.origin(id, name), &reader, workspace)?.into(),
                };
                let value = match kind {
                    Kind::Text => text(&encoded.memory).ok_or_else(|| not_text(&*self.source, id, name))?,
                    _ => Value::Bytes(encoded),
                };
                sample.put(name, value);
                continue;
            };
            // If the field is delivered unchanged, this is memory in the batch's slot, so the bytes are never copied.
            let mut memory = sample.output(name, *dtype, shape, workspace)?;
            match self.source.origin(id, name) {
                Origin::Part { object, range } => {
                    reader.read_at(&*object, range.start, &mut memory, workspace.cancel())?;
                }
                Origin::Made => self.source.make(id, name, &mut memory),
                Origin::Whole { .. } => unreachable!("a whole object has no fixed shape"),
            }
            sample.put(name, value(kind, *dtype, shape, memory));
        }
        self.volumes.load(&self.plan, loading)?;
        Ok(Cut(0))
    }
}

fn read_whole<'s>(
    origin: Origin<'_>,
    reader: &Reader<'_>,
    workspace: &mut Workspace,
) -> Result<Memory<'s>, SupplyError> {
    match origin {
        Origin::Whole { store, name } if store.is_remote() => {
            let object = store.open(name)?;
            read_range(&*object, 0..object.len(), reader, workspace)
        }
        Origin::Whole { store, name } => {
            let mut room = BufferRoom { workspace, buffer: None };
            reader.metrics.read.time(|| store.read(name, &mut room))?;
            let memory = Memory::Heap(room.buffer.unwrap_or_default());
            reader.metrics.read.add_bytes(memory.len());
            Ok(memory)
        }
        Origin::Part { object, range } => read_range(&*object, range, reader, workspace),
        Origin::Made => unreachable!("a source knows the shape of what it generates: see check_source"),
    }
}

fn read_range<'s>(
    object: &dyn Object,
    range: Range<u64>,
    reader: &Reader<'_>,
    workspace: &mut Workspace,
) -> Result<Memory<'s>, SupplyError> {
    let mut buffer = workspace.buffer((range.end.saturating_sub(range.start)) as usize).map_err(StoreError::from)?;
    reader.read_at(object, range.start, buffer.as_mut_slice(), workspace.cancel())?;
    Ok(Memory::Heap(buffer))
}

/// Translates a range of a picture into a range of the object that contains it.
fn within(all: &Range<u64>, part: &Range<u64>) -> Range<u64> {
    all.start.saturating_add(part.start)..all.start.saturating_add(part.end)
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

/// A buffer of the thread, allocated once the length is known.
struct BufferRoom<'a> {
    workspace: &'a mut Workspace,
    buffer: Option<Buffer>,
}

impl BufferSource for BufferRoom<'_> {
    fn room(&mut self, len: usize) -> Result<&mut [u8], NoMemory> {
        let buffer = self.buffer.insert(self.workspace.buffer(len)?);
        Ok(buffer.as_mut_slice())
    }
}
