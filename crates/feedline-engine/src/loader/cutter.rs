//! Cuts batches out of segments.
//!
//! In: leased segments, one after the other. Out: batches with the job's own size and fields. A batch inside one segment is a view
//! of it. A batch is copied in three cases:
//! - it lies in several segments
//! - the user still holds arrays over [`MAX_PINNED`] earlier segments
//! - memory for segments is short, so that no view may keep this one (`Segment::can_be_kept`)
//!
//! Always true: a batch keeps the lease of the memory it views, so its bytes stay valid as long as any array over it (law 5). At
//! most one segment is held here, whatever the batch size, so jobs do not block each other with segments that they hold.

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

/// If the user holds arrays over this many earlier segments, batches are copied instead of viewed.
const MAX_PINNED: usize = 2;

/// The segment that a job reads, and how far it is cut.
#[derive(Debug)]
pub(super) struct Cutter {
    /// The job's plan.
    plan: Arc<Plan>,
    /// The plan of the segments, which decides their layout.
    production: Arc<Plan>,
    segments: Segments,
    /// The current segment, and how many of its samples are used, counted from the start of the whole segment.
    held: Option<(Segment, u64)>,
    /// The start of a batch that continues in the next segment.
    unfinished: Option<Copied>,
    /// Leases of earlier segments. A lease is alive as long as the user holds arrays over its segment.
    past: Vec<Weak<dyn Any + Send + Sync>>,
    /// Memory for copied batches.
    pool: Pool,
}

/// A batch that was cut.
#[derive(Debug)]
pub(super) struct Cutting {
    pub fields: Vec<BatchField>,
    /// The segment rounds whose first samples are in this batch.
    pub begun: Vec<SegmentRound>,
    /// Slots of the batch with substitutes in them.
    pub bad: Vec<BadSlot>,
}

/// A batch that is copied.
#[derive(Debug)]
struct Copied {
    /// Writes all slots of the slab. It must be dropped before the slab can be sealed.
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
        Self { plan, production, segments, held: None, unfinished: None, past: Vec::new(), pool }
    }

    /// Drops the current segment and the start of a batch. Still tracks the segments that the user holds arrays over.
    pub(super) fn clear(&mut self) {
        if let Some((segment, _)) = self.held.take() {
            self.past.push(Arc::downgrade(&segment.lease));
        }
        self.unfinished = None;
    }

    /// Adds a segment of which the job received the first `received` samples before. The previous segment must be used up.
    pub(super) fn add(&mut self, segment: Segment, received: u64) {
        debug_assert!(self.held.is_none(), "a segment comes when the one before it is used up");
        self.held = Some((segment, received));
    }

    /// Number of unused samples in the current segment.
    fn left(&self) -> usize {
        self.held.as_ref().map_or(0, |(segment, used)| {
            let positions = self.segments.positions(segment.segment_round.segment);
            (positions.end - positions.start - used) as usize
        })
    }

    /// Number of samples that are in no batch yet.
    pub(super) fn samples(&self) -> usize {
        self.unfinished.as_ref().map_or(0, |copied| copied.ids.len()) + self.left()
    }

    /// Whether a batch of `len` samples can be cut. If not, copies the rest of the current segment and gives the segment back, so
    /// that the next one can be leased.
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

    /// Cuts a batch of `len` samples. [`Self::has`] must have returned true.
    pub(super) fn cut(&mut self, len: usize) -> Result<Cutting, Error> {
        // A lease without owners has ended: the user dropped all arrays over that segment.
        self.past.retain(|lease| lease.strong_count() > 0);
        let may_view = self.held.as_ref().is_some_and(|(segment, _)| segment.can_be_kept)
            && self.unfinished.is_none()
            && self.past.len() < MAX_PINNED;
        if may_view { Ok(self.view(len)) } else { self.copy_rest(len) }
    }

    /// Describes the next samples of the segment. Returns the slot of the first one in the segment's memory, the round of the
    /// segment if they are its first samples, and the substitutes among them. The slots of substitutes are those of the batch, in
    /// which these samples start at slot `first`.
    fn next(&self, samples: usize, first: usize) -> (usize, Option<SegmentRound>, Vec<BadSlot>) {
        let (segment, used) = self.held.as_ref().expect("samples are taken where there are some");
        // `used` counts samples of the whole segment, but the memory starts after the skipped ones.
        let slot = (used - segment.skipped) as usize;
        let begins = (*used == 0).then_some(segment.segment_round);
        let bad = segment.bad.iter().filter(|bad| (slot..slot + samples).contains(&bad.slot));
        let bad = bad.map(|one| BadSlot { slot: first + one.slot - slot, ..one.clone() }).collect();
        (slot, begins, bad)
    }

    /// Counts samples as used. Drops the segment after its last sample.
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

    /// The memory of a field's slots in the segment.
    fn span(&self, name: &str, first_slot: usize, slots: usize) -> Span {
        let (segment, _) = self.held.as_ref().expect("samples are taken where there are some");
        let layout = self.production.layout();
        let form = layout.fields().iter().find(|(field, _)| **field == *name).map(|(_, form)| form);
        let Some(FieldForm::Region { region, .. }) = form else {
            unreachable!("every shared field is produced: {name:?}")
        };
        let start = layout.slab().slot_range(*region, first_slot).start;
        segment.span(start..start + slots * layout.slab().slot_bytes(*region))
    }

    /// Cuts a batch whose arrays are views of the segment.
    fn view(&mut self, len: usize) -> Cutting {
        let (slot, begins, bad) = self.next(len, 0);
        let ids = ids(self.span(INDEX_FIELD, slot, len).bytes());
        let fields = self.fields(len, &ids, |name, _| self.span(name, slot, len));
        self.use_up(len);
        Cutting { fields, begun: begins.into_iter().collect(), bad }
    }

    /// Appends the next samples of the segment to the unfinished batch.
    fn copy(&mut self, samples: usize) -> Result<(), Error> {
        let mut copied = match self.unfinished.take() {
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
        self.unfinished = Some(copied);
        self.use_up(samples);
        Ok(())
    }

    fn new_copy(&self) -> Result<Copied, Error> {
        let bytes = self.pool.layout().total_bytes();
        let slab = self.pool.open().ok_or(Error::OutOfMemory { bytes })?;
        let writer = slab.claim(0..slab.layout().slots()).expect("a new slab is free");
        Ok(Copied { writer, slab, ids: Vec::new(), begun: Vec::new(), bad: Vec::new() })
    }

    /// Copies what is missing of a batch of `len` samples, and finishes it.
    fn copy_rest(&mut self, len: usize) -> Result<Cutting, Error> {
        let copied = self.unfinished.as_ref().map_or(0, |copied| copied.ids.len());
        if copied < len {
            self.copy(len - copied)?;
        }
        let Copied { writer, slab, ids, begun, bad } = self.unfinished.take().expect("something was copied");
        // A slab can only be sealed when it has no writer.
        drop(writer);
        let slab = Arc::new(slab.seal().expect("the writer is gone"));
        let fields = self.fields(len, &ids, |_, region| {
            let start = slab.layout().slot_range(region, 0).start;
            Span::of_slab(&slab, start..start + len * slab.layout().slot_bytes(region))
        });
        Ok(Cutting { fields, begun, bad })
    }

    /// The fields of a batch. `span` gives the memory of a field by its name and the region of the job's layout.
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

/// The sample indices in the bytes of the `index` field.
fn ids(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|id| u64::from_ne_bytes(*id)).collect()
}
