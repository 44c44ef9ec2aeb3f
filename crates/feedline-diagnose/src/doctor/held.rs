//! Samples whose bytes are in memory, so that only preparation remains.
//!
//! In: a source, and limits. Out: some of its samples with the same names, stamps and indexes, from memory.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use delegate::delegate;
use feedline_data::batch::FieldTypes;
use feedline_data::source::{OpenPart, Origin, Part, Source, SourceError, SubsetSource};
use feedline_data::store::{BufferSource as _, Object, Peer, StoreError};
use feedline_order::{Block, Ordinal, SampleId};

use super::DoctorError;
use super::watch::Trainer;

/// Upper limit of bytes.
const MAX_BYTES: u64 = 512 << 20;
/// Upper limit of samples, and the number to try regardless of time.
const MAX_SAMPLES: u64 = 4096;
const MIN_SAMPLES: usize = 16;

/// A source of which some samples are in memory.
#[derive(Debug)]
pub(super) struct HeldSource {
    parent: Arc<dyn Source>,
    parts: HashMap<u64, Vec<(Arc<str>, OpenPart)>>,
}

/// How long samples are read into memory, and how many at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldLimits {
    pub seconds: f64,
    pub samples: u64,
}

/// A part of an object, with its place.
#[derive(Debug)]
struct HeldObject {
    bytes: Vec<u8>,
    start: u64,
    len: u64,
    modified_nanoseconds: Option<i64>,
    address: String,
}

impl HeldSource {
    /// Reads some samples of `parent`, spread evenly, into memory: as many as the limits allow. Leaves out samples that cannot be
    /// read.
    pub(super) fn read(
        parent: &Arc<dyn Source>,
        fields: &FieldTypes,
        limits: HeldLimits,
        trainer: &mut dyn Trainer,
    ) -> Result<Arc<dyn Source>, DoctorError> {
        let deadline = Instant::now() + Duration::from_secs_f64(limits.seconds);
        let (mut ids, mut parts, mut bytes) = (Vec::new(), HashMap::new(), 0);
        let count = parent.len().min(MAX_SAMPLES).min(limits.samples.max(MIN_SAMPLES as u64));
        // An order in which every prefix is spread evenly.
        // In 128 bits, because the product of two 64-bit numbers may overflow.
        let spread = |number: u64| (u128::from(number) * u128::from(parent.len()) / u128::from(count)) as u64;
        let mut order: Vec<u64> = (0..count).collect();
        // Bit-reversed numbers (the van der Corput sequence): each prefix covers the whole range evenly.
        order.sort_unstable_by_key(|number| number.reverse_bits());
        for (tried, ordinal) in order.into_iter().map(spread).enumerate() {
            trainer.check()?;
            // A few samples are always tried, however slow they are to read.
            let is_late = tried >= MIN_SAMPLES && Instant::now() >= deadline;
            if is_late || bytes >= MAX_BYTES {
                break;
            }
            let id = parent.id_at(Ordinal(ordinal));
            // Bad samples are left out: this measures speed, not the data.
            let Ok(held) = hold(&**parent, id, fields) else { continue };
            bytes += held.iter().map(|(_, (_, range))| range.end - range.start).sum::<u64>();
            ids.push(id.0);
            parts.insert(id.0, held);
        }
        if ids.is_empty() {
            return Err(SourceError::Parameter("none of the samples can be read".to_owned()).into());
        }
        let held = Arc::new(Self { parent: Arc::clone(parent), parts });
        Ok(Arc::new(SubsetSource::new(held, Part::Indices { indices: ids })?))
    }
}

/// Reads the stored bytes of a sample.
fn hold(source: &dyn Source, id: SampleId, fields: &FieldTypes) -> Result<Vec<(Arc<str>, OpenPart)>, StoreError> {
    let mut held = Vec::new();
    for (field, _) in fields.iter() {
        let Some((object, range)) = source.origin(id, field).open()? else { continue };
        // Nothing to gain: the source keeps these bytes in memory itself.
        if object.is_in_memory() {
            continue;
        }
        let mut bytes = Vec::new();
        object.read_at(range.start, bytes.room((range.end.saturating_sub(range.start)) as usize)?)?;
        let (len, modified_nanoseconds, address) = (object.len(), object.modified_nanoseconds(), object.address());
        let object: Arc<dyn Object> =
            Arc::new(HeldObject { bytes, start: range.start, len, modified_nanoseconds, address });
        held.push((Arc::clone(field), (object, range)));
    }
    Ok(held)
}

impl Object for HeldObject {
    fn len(&self) -> u64 {
        self.len
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn modified_nanoseconds(&self) -> Option<i64> {
        self.modified_nanoseconds
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), StoreError> {
        let start = offset.checked_sub(self.start).and_then(|start| usize::try_from(start).ok());
        let bytes = start.and_then(|start| self.bytes.get(start..start.checked_add(target.len())?));
        let truncated = || StoreError::Truncated {
            path: self.address.clone(),
            range: offset..offset.saturating_add(target.len() as u64),
            len: self.start + self.bytes.len() as u64,
        };
        target.copy_from_slice(bytes.ok_or_else(truncated)?);
        Ok(())
    }

    fn is_in_memory(&self) -> bool {
        true
    }
}

#[deny(clippy::missing_trait_methods)]
impl Source for HeldSource {
    delegate! {
        to self.parent {
            fn len(&self) -> u64;
            fn is_empty(&self) -> bool;
            fn id_at(&self, ordinal: Ordinal) -> SampleId;
            fn ordinal_of(&self, id: SampleId) -> Option<Ordinal>;
            fn fields(&self) -> FieldTypes;
            fn make(&self, id: SampleId, field: &str, target: &mut [u8]);
            fn make_each(&self, ids: &[SampleId], field: &str, target: &mut [u8]);
            fn made_shape(&self, id: SampleId, field: &str) -> Option<Vec<usize>>;
            fn key(&self, id: SampleId) -> Cow<'_, str>;
            fn address(&self, id: SampleId) -> Option<(String, Option<Range<u64>>)>;
            fn class_of(&self, id: SampleId) -> Option<i64>;
            fn classes(&self) -> &[String];
            fn skipped(&self) -> u64;
            fn identity(&self) -> u128;
            fn version(&self) -> u128;
            fn ending(&self, id: SampleId, field: &str) -> Option<String>;
            fn seek_record(&self, id: SampleId, field: &str, record: &mut Vec<u8>) -> Result<bool, StoreError>;
            fn refreshed(&self) -> Result<Arc<dyn Source>, SourceError>;
        }
    }

    fn origin(&self, id: SampleId, field: &str) -> Origin<'_> {
        let parts = self.parts.get(&id.0);
        match parts.and_then(|parts| parts.iter().find(|(name, _)| **name == *field)) {
            // Samples that are not in memory, and fields without stored bytes, come from the parent.
            Some((_, (object, range))) => Origin::Part { object: Arc::clone(object), range: range.clone() },
            None => self.parent.origin(id, field),
        }
    }

    /// Bytes in memory are not read in sequence.
    fn blocks(&self) -> Option<Vec<Block>> {
        None
    }

    /// Samples in memory are prepared on this machine.
    fn peer(&self) -> Option<Arc<dyn Peer>> {
        None
    }

    fn parent(&self) -> Option<&dyn Source> {
        Some(&*self.parent)
    }

    /// The bytes are in memory, not with a peer.
    fn is_remote(&self) -> bool {
        false
    }

    fn spec(&self) -> Result<toml::Table, SourceError> {
        Err(SourceError::Unserialisable("its samples are in memory".to_owned()))
    }
}
