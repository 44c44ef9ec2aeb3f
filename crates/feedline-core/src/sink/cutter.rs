//! Cuts batches out of segments.
//!
//! In: segments that a job has leased. Out: batches of the job's own size and fields. A batch within a segment is a view of it;
//! one that runs across segments is copied, and so is one of a job that still holds arrays over several segments before.
//!
//! Always true: a batch keeps the lease of what it views, so its bytes stay as long as any array over it (law 5).

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use feedline_memory::{Pool, Span};

use super::feed::Segment;
use crate::batch::{Batch, BatchField, FieldData, FieldForm, Loose};
use crate::carousel::{BadSlot, Portion};
use crate::error::Error;
use crate::order::{Epoch, SampleId, Segments};
use crate::plan::{INDEX_FIELD, KEY_FIELD, Plan};

/// Segments that a job may hold arrays over besides the one that it reads.
const MOST_PINNED: usize = 2;

/// The segments that a job reads, and the way of cutting them.
#[derive(Debug)]
pub(super) struct Cutter {
    plan: Arc<Plan>,
    production: Arc<Plan>,
    segments: Segments,
    /// What was leased and is not used up, each with the number of samples that are.
    held: VecDeque<(Segment, u64)>,
    /// Leases of segments that are used up.
    past: Vec<Weak<dyn Any + Send + Sync>>,
    /// Memory of batches that are copied.
    pool: Pool,
}

/// A batch that was cut, and what that began.
#[derive(Debug)]
pub(super) struct Cutting {
    pub batch: Batch,
    pub begun: Vec<Portion>,
    pub bad: Vec<BadSlot>,
}

/// Slots of one segment that go into a batch.
struct Slice {
    segment: Segment,
    first_slot: usize,
    slots: usize,
}

impl Cutter {
    pub fn new(plan: &Arc<Plan>, production: Arc<Plan>) -> Self {
        let pool = Pool::new(plan.layout().slab().clone(), 4);
        let segments = plan.segments();
        Self { plan: Arc::clone(plan), production, segments, held: VecDeque::new(), past: Vec::new(), pool }
    }

    /// Forgets what is held.
    pub fn clear(&mut self) {
        self.held.clear();
        self.past.clear();
    }

    /// Takes a segment, of which `received` samples were received before.
    pub fn add(&mut self, segment: Segment, received: u64) {
        self.held.push_back((segment, received));
    }

    fn len_of(&self, segment: &Segment) -> u64 {
        let positions = self.segments.positions(segment.portion.segment);
        positions.end - positions.start
    }

    /// Samples that can be cut.
    pub fn samples(&self) -> u64 {
        self.held.iter().map(|(segment, used)| self.len_of(segment) - used).sum()
    }

    /// Cuts a batch of `len` samples, which are there. What was used up is given back, as far as the batch does not view it.
    pub fn cut(&mut self, epoch: Epoch, number: u64, len: usize) -> Result<Cutting, Error> {
        let slices = self.slices(len);
        let begins = |slice: &&Slice| slice.first_slot == 0 && slice.segment.skipped == 0;
        let begun = slices.iter().filter(begins).map(|slice| slice.segment.portion).collect();
        let mut bad = Vec::new();
        let mut before = 0;
        for slice in &slices {
            let slots = slice.first_slot..slice.first_slot + slice.slots;
            let in_slice = slice.segment.bad.iter().filter(|bad| slots.contains(&bad.slot));
            bad.extend(in_slice.map(|one| BadSlot { slot: before + one.slot - slots.start, ..one.clone() }));
            before += slice.slots;
        }
        self.past.retain(|lease| lease.strong_count() > 0);
        let fields = match &slices[..] {
            [slice] if self.past.len() < MOST_PINNED => self.viewed(slice),
            _ => self.copied(&slices, len)?,
        };
        self.use_up(len as u64);
        Ok(Cutting { batch: Batch { epoch, number, len, fields }, begun, bad })
    }

    fn slices(&self, len: usize) -> Vec<Slice> {
        let (mut slices, mut left) = (Vec::new(), len as u64);
        for (segment, used) in &self.held {
            let slots = (self.len_of(segment) - used).min(left);
            if slots > 0 {
                let first_slot = (used - segment.skipped) as usize;
                slices.push(Slice { segment: segment.clone(), first_slot, slots: slots as usize });
            }
            left -= slots;
        }
        slices
    }

    fn use_up(&mut self, mut samples: u64) {
        while let Some((segment, used)) = self.held.front_mut() {
            let positions = self.segments.positions(segment.portion.segment);
            let there = positions.end - positions.start - *used;
            *used += samples.min(there);
            samples = samples.saturating_sub(there);
            if samples == 0 && *used < positions.end - positions.start {
                break;
            }
            if let Some((segment, _)) = self.held.pop_front() {
                self.past.push(Arc::downgrade(&segment.lease));
            }
        }
    }

    /// Where the slots of a field lie in a segment.
    fn span(&self, slice: &Slice, name: &str) -> Span {
        let layout = self.production.layout();
        let form = layout.fields().iter().find(|(field, _)| **field == *name).map(|(_, form)| form);
        let Some(FieldForm::Region { region, .. }) = form else { unreachable!("what is shared is produced: {name:?}") };
        let start = layout.slab().slot_range(*region, slice.first_slot).start;
        slice.segment.span(start..start + slice.slots * layout.slab().slot_bytes(*region))
    }

    fn viewed(&self, slice: &Slice) -> Vec<BatchField> {
        let ids = || ids(self.span(slice, INDEX_FIELD).bytes());
        self.fields(slice.slots, ids, |name, _| self.span(slice, name))
    }

    fn copied(&self, slices: &[Slice], len: usize) -> Result<Vec<BatchField>, Error> {
        let bytes = self.pool.layout().total_bytes();
        let open = self.pool.open().ok_or(Error::OutOfMemory { bytes })?;
        let mut writer = open.claim(0..open.layout().slots()).expect("a new slab is free");
        for (name, form) in self.plan.layout().fields() {
            let FieldForm::Region { region, .. } = form else { continue };
            let mut slot = 0;
            for slice in slices {
                let span = self.span(slice, name);
                let slot_bytes = span.bytes().len() / slice.slots;
                for bytes in span.bytes().chunks_exact(slot_bytes.max(1)) {
                    writer.slot_mut(slot)[*region].copy_from_slice(bytes);
                    slot += 1;
                }
            }
        }
        drop(writer);
        let slab = Arc::new(open.seal().expect("the writer is gone"));
        let all = |slice: &Slice| ids(self.span(slice, INDEX_FIELD).bytes());
        let ids = || slices.iter().flat_map(all).collect();
        Ok(self.fields(len, ids, |_, region| {
            let start = slab.layout().slot_range(region, 0).start;
            Span::of_slab(&slab, start..start + len * slab.layout().slot_bytes(region))
        }))
    }

    fn fields(
        &self,
        len: usize,
        ids: impl FnOnce() -> Vec<u64>,
        span: impl Fn(&str, usize) -> Span,
    ) -> Vec<BatchField> {
        let mut ids = Some(ids);
        let field = |(name, form): &(Arc<str>, FieldForm)| {
            let data = match form {
                FieldForm::Region { region, dtype, shape } => {
                    let shape = std::iter::once(len).chain(shape.iter().copied()).collect();
                    FieldData::Region { span: span(name, *region), dtype: *dtype, shape }
                }
                _ if **name == *KEY_FIELD => {
                    let ids = ids.take().map(|ids| ids()).unwrap_or_default();
                    let key = |id| Loose::Text(self.plan.source().key(SampleId(id)).into_owned());
                    FieldData::List(ids.into_iter().map(key).collect())
                }
                FieldForm::Stacked | FieldForm::List => unreachable!("only arrays of fixed shape are shared: {name:?}"),
            };
            BatchField { name: Arc::clone(name), data }
        };
        self.plan.layout().fields().iter().map(field).collect()
    }
}

fn ids(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|id| u64::from_ne_bytes(*id)).collect()
}
