//! Cuts batches out of segments.
//!
//! In: segments that a job has leased, one after the other. Out: batches of the job's own size and fields. A batch within a
//! segment is a view of it; one that runs across segments is copied piece by piece, and so is one of a job that still holds
//! arrays over several segments before, or that may not keep any.
//!
//! Always true: a batch keeps the lease of what it views, so its bytes stay as long as any array over it (law 5). At most one
//! segment is held here, whatever the size of batches, so jobs do not wait for each other's segments while they hold some.

use std::any::Any;
use std::sync::{Arc, Weak};

use feedline_data::batch::{BatchField, FieldData, FieldForm, Unslotted};
use feedline_data::plan::{INDEX_FIELD, KEY_FIELD, Plan};
use feedline_memory::{OpenSlab, Pool, SlotWriter, Span};
use feedline_order::{SampleId, Segments};

use super::feed::Segment;
use crate::carousel::BadSlot;
use crate::error::Error;
use crate::state::SegmentRound;

/// Segments that a job may hold arrays over besides the one that it reads.
const MOST_PINNED: usize = 2;

/// The segment that a job reads, and the way of cutting it.
#[derive(Debug)]
pub(super) struct Cutter {
    plan: Arc<Plan>,
    production: Arc<Plan>,
    segments: Segments,
    /// What was leased and is not used up, with the number of samples that are.
    held: Option<(Segment, u64)>,
    /// The beginning of a batch whose other samples are in segments to come.
    begun: Option<Copied>,
    /// Leases of segments that are used up.
    past: Vec<Weak<dyn Any + Send + Sync>>,
    /// Memory of batches that are copied.
    pool: Pool,
}

/// The fields of a batch that was cut, and what that began.
#[derive(Debug)]
pub(super) struct Cutting {
    pub fields: Vec<BatchField>,
    pub begun: Vec<SegmentRound>,
    pub bad: Vec<BadSlot>,
}

/// A batch that is copied.
#[derive(Debug)]
struct Copied {
    // In this order: no writer may be left when the slab is sealed.
    writer: SlotWriter,
    slab: OpenSlab,
    ids: Vec<u64>,
    begun: Vec<SegmentRound>,
    bad: Vec<BadSlot>,
}

impl Cutter {
    pub(super) fn new(plan: &Arc<Plan>, production: Arc<Plan>) -> Self {
        let pool = Pool::new(plan.layout().slab().clone(), 4);
        let (plan, segments) = (Arc::clone(plan), plan.segments().clone());
        Self { plan, production, segments, held: None, begun: None, past: Vec::new(), pool }
    }

    /// Forgets what is held; of what the user keeps arrays it stays known.
    pub(super) fn clear(&mut self) {
        if let Some((segment, _)) = self.held.take() {
            self.past.push(Arc::downgrade(&segment.lease));
        }
        self.begun = None;
    }

    /// Takes a segment, of which `received` samples were received before. The one before it is used up.
    pub(super) fn add(&mut self, segment: Segment, received: u64) {
        debug_assert!(self.held.is_none(), "a segment comes when the one before it is used up");
        self.held = Some((segment, received));
    }

    /// Samples of the segment that is held which are not used.
    fn left(&self) -> usize {
        self.held.as_ref().map_or(0, |(segment, used)| {
            let positions = self.segments.positions(segment.segment_round.segment);
            (positions.end - positions.start - used) as usize
        })
    }

    /// Samples that are there and in no batch yet.
    pub(super) fn samples(&self) -> usize {
        self.begun.as_ref().map_or(0, |begun| begun.ids.len()) + self.left()
    }

    /// Whether a batch of `len` samples can be cut. If not, what is there of it is copied, so that the next segment can come.
    pub(super) fn has(&mut self, len: usize) -> Result<bool, Error> {
        if self.samples() >= len {
            return Ok(true);
        }
        let left = self.left();
        if left > 0 {
            self.copy(left)?;
        }
        self.held = None;
        Ok(false)
    }

    /// Cuts a batch of `len` samples, which are there.
    pub(super) fn cut(&mut self, len: usize) -> Result<Cutting, Error> {
        self.past.retain(|lease| lease.strong_count() > 0);
        let may_view = self.held.as_ref().is_some_and(|(segment, _)| segment.can_be_kept)
            && self.begun.is_none()
            && self.past.len() < MOST_PINNED;
        if may_view { Ok(self.view(len)) } else { self.copy_rest(len) }
    }

    /// The next samples of the segment: its slots, what it begins, and what is bad in it, counted from slot `first` of the batch.
    fn next(&self, samples: usize, first: usize) -> (usize, Option<SegmentRound>, Vec<BadSlot>) {
        let (segment, used) = self.held.as_ref().expect("samples are taken where there are some");
        let slot = (used - segment.skipped) as usize;
        let begins = (*used == 0).then_some(segment.segment_round);
        let bad = segment.bad.iter().filter(|bad| (slot..slot + samples).contains(&bad.slot));
        let bad = bad.map(|one| BadSlot { slot: first + one.slot - slot, ..one.clone() }).collect();
        (slot, begins, bad)
    }

    fn use_up(&mut self, samples: usize) {
        if let Some((_, used)) = &mut self.held {
            *used += samples as u64;
        }
        if self.left() == 0
            && let Some((segment, _)) = self.held.take()
        {
            self.past.push(Arc::downgrade(&segment.lease));
        }
    }

    /// Where the slots of a field lie in the segment.
    fn span(&self, name: &str, first_slot: usize, slots: usize) -> Span {
        let (segment, _) = self.held.as_ref().expect("samples are taken where there are some");
        let layout = self.production.layout();
        let form = layout.fields().iter().find(|(field, _)| **field == *name).map(|(_, form)| form);
        let Some(FieldForm::Region { region, .. }) = form else { unreachable!("what is shared is produced: {name:?}") };
        let start = layout.slab().slot_range(*region, first_slot).start;
        segment.span(start..start + slots * layout.slab().slot_bytes(*region))
    }

    fn view(&mut self, len: usize) -> Cutting {
        let (slot, begins, bad) = self.next(len, 0);
        let ids = ids(self.span(INDEX_FIELD, slot, len).bytes());
        let fields = self.fields(len, &ids, |name, _| self.span(name, slot, len));
        self.use_up(len);
        Cutting { fields, begun: begins.into_iter().collect(), bad }
    }

    /// Copies the next samples of the segment behind what was copied of the batch.
    fn copy(&mut self, samples: usize) -> Result<(), Error> {
        let mut copied = match self.begun.take() {
            Some(copied) => copied,
            None => self.new_copy()?,
        };
        let first = copied.ids.len();
        let (slot, begins, bad) = self.next(samples, first);
        for (name, form) in self.plan.layout().fields() {
            let FieldForm::Region { region, .. } = form else { continue };
            let span = self.span(name, slot, samples);
            let slot_bytes = span.bytes().len() / samples;
            if slot_bytes > 0 {
                let slots = (first..).zip(span.bytes().chunks_exact(slot_bytes));
                slots.for_each(|(slot, bytes)| copied.writer.slot_mut(slot)[*region].copy_from_slice(bytes));
            }
        }
        copied.ids.extend(ids(self.span(INDEX_FIELD, slot, samples).bytes()));
        copied.begun.extend(begins);
        copied.bad.extend(bad);
        self.begun = Some(copied);
        self.use_up(samples);
        Ok(())
    }

    fn new_copy(&self) -> Result<Copied, Error> {
        let bytes = self.pool.layout().total_bytes();
        let slab = self.pool.open().ok_or(Error::OutOfMemory { bytes })?;
        let writer = slab.claim(0..slab.layout().slots()).expect("a new slab is free");
        Ok(Copied { writer, slab, ids: Vec::new(), begun: Vec::new(), bad: Vec::new() })
    }

    fn copy_rest(&mut self, len: usize) -> Result<Cutting, Error> {
        let copied = self.begun.as_ref().map_or(0, |begun| begun.ids.len());
        if copied < len {
            self.copy(len - copied)?;
        }
        let Copied { writer, slab, ids, begun, bad } = self.begun.take().expect("something was copied");
        drop(writer);
        let slab = Arc::new(slab.seal().expect("the writer is gone"));
        let fields = self.fields(len, &ids, |_, region| {
            let start = slab.layout().slot_range(region, 0).start;
            Span::of_slab(&slab, start..start + len * slab.layout().slot_bytes(region))
        });
        Ok(Cutting { fields, begun, bad })
    }

    fn fields(&self, len: usize, ids: &[u64], span: impl Fn(&str, usize) -> Span) -> Vec<BatchField> {
        let key = |id: &u64| Unslotted::Text(self.plan.source().key(SampleId(*id)).into_owned());
        let field = |(name, form): &(Arc<str>, FieldForm)| {
            let data = match form {
                FieldForm::Region { region, dtype, shape } => {
                    let shape = std::iter::once(len).chain(shape.iter().copied()).collect();
                    FieldData::Region { span: span(name, *region), dtype: *dtype, shape }
                }
                _ if **name == *KEY_FIELD => FieldData::List(ids.iter().map(key).collect()),
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
