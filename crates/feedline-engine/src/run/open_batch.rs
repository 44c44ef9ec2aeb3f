//! A batch in preparation.
//!
//! In: reports of its tasks. Out: the finished batch, once all slots are filled.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_data::batch::{Batch, BatchField, BatchLayout, FieldData, FieldForm, RaggedError, Unslotted, stack};
use feedline_data::dtype::Dtype;
use feedline_data::failure::SampleFailure;
use feedline_data::memory::{Budget, HeldBytes};
use feedline_memory::{OpenSlab, Slab, SlotWriter, Span};

use super::batch_plan::Upcoming;
use super::prepare::TaskReport;
use crate::metrics::{Phase, Substitute};
use crate::slot_ref::BatchSerial;
use crate::state::Cursor;

#[derive(Debug)]
pub(super) struct OpenBatch {
    pub serial: BatchSerial,
    /// The cursor before this batch.
    pub cursor: Cursor,
    len: usize,
    missing: usize,
    slab: OpenSlab,
    layout: Arc<BatchLayout>,
    loose: Vec<Option<Vec<Unslotted>>>,
    pub failure: Option<Arc<SampleFailure>>,
    pub substitutes: Vec<Substitute>,
    /// Booked memory: the slab, and values without a fixed shape.
    pub held: HeldBytes,
    /// Time that its samples spent in reads, in ops and waiting for memory.
    spent: [Duration; 3],
    /// Whether a consumer waited while a peer sent the bytes of one of its samples.
    pub is_late: bool,
    /// When its opening started, when its tasks were made, and when it was complete.
    pub times: [Instant; 3],
}

impl OpenBatch {
    /// Opens a batch of `len` samples. Its memory is booked in `budget`.
    pub(super) fn new(
        upcoming: &Upcoming,
        len: usize,
        slab: OpenSlab,
        layout: Arc<BatchLayout>,
        budget: &Arc<Budget>,
        began: Instant,
    ) -> Self {
        Self {
            serial: upcoming.serial,
            cursor: upcoming.cursor.clone(),
            len,
            missing: len,
            held: HeldBytes::new(budget, slab.layout().total_bytes() as u64),
            slab,
            layout,
            loose: (0..len).map(|_| None).collect(),
            failure: None,
            substitutes: Vec::new(),
            spent: [Duration::ZERO; 3],
            is_late: false,
            times: [began; 3],
        }
    }

    /// Number of samples.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// The phase that took most of its samples' time, or `Read` if the consumer waited for bytes from a peer.
    pub(super) fn main_phase(&self) -> Phase {
        if self.is_late {
            return Phase::Read;
        }
        let phases = [Phase::Read, Phase::Prepare, Phase::Memory];
        let longest = (0..3).max_by_key(|&phase| self.spent[phase]).expect("there are three");
        phases[longest]
    }

    /// Returns a writer for slots that have no other writer.
    pub(super) fn claim(&self, slots: Range<usize>) -> SlotWriter {
        self.slab.claim(slots).expect("a new slab's slots are free and groups are disjoint")
    }

    /// Records a finished task with `slots` slots.
    pub(super) fn record(&mut self, slots: usize, report: TaskReport) {
        // The batch now owns the booked bytes of its values until it is delivered.
        self.held.absorb(report.kept);
        for prepared in report.prepared {
            self.loose[prepared.slot] = Some(prepared.loose);
            self.substitutes.extend(prepared.substitute);
        }
        // Tasks end in any order. The consumer sees the failure with the lowest position, so runs agree on the error.
        let is_earlier =
            |failure: &Arc<SampleFailure>| self.failure.as_ref().is_none_or(|known| failure.position < known.position);
        if let Some(failure) = report.failure.filter(is_earlier) {
            self.failure = Some(failure);
        }
        self.missing -= slots;
        for (total, time) in self.spent.iter_mut().zip([report.read, report.ops, report.memory]) {
            *total += time;
        }
        if self.is_complete() {
            self.times[2] = Instant::now();
            // Tasks end in any order. Sort, so that the report does not depend on timing.
            self.substitutes.sort_by_key(|substitute| substitute.failure.position);
        }
    }

    /// Seals the slab and builds the batch.
    pub(super) fn assemble(self) -> Result<(Batch, Arc<Slab>), Box<RaggedError>> {
        let slab =
            self.slab.seal().expect("writers are gone before their slots count as filled: see RunShared::settle");
        let slab = Arc::new(slab);
        let mut loose: Vec<std::vec::IntoIter<Unslotted>> =
            self.loose.into_iter().map(|values| values.unwrap_or_default().into_iter()).collect();
        let region = |number: usize, dtype: Dtype, shape: &[usize]| {
            let start = slab.layout().region_range(number).start;
            // A region lies contiguously in the slab: slot 0, slot 1, and so on. A short batch uses the first slots.
            let span = Span::of_slab(&slab, start..start + self.len * slab.layout().slot_bytes(number));
            FieldData::Region { span, dtype, shape: [&[self.len], shape].concat() }
        };
        let mut fields = Vec::with_capacity(self.layout.fields().len() + self.layout.leaves().len());
        for (name, form) in self.layout.fields() {
            let data = match form {
                FieldForm::Region { region: number, dtype, shape } => region(*number, *dtype, shape),
                FieldForm::Stacked => stack(name, loose.iter_mut().filter_map(Iterator::next).collect())?,
                FieldForm::List => FieldData::List(loose.iter_mut().filter_map(Iterator::next).collect()),
            };
            fields.push(BatchField { name: Arc::clone(name), data });
        }
        for (number, leaf) in self.layout.leaves().iter().enumerate() {
            let data = region(self.layout.leaf_region(number), leaf.dtype, &leaf.shape);
            fields.push(BatchField { name: number.to_string().into(), data });
        }
        let batch = Batch { epoch: self.cursor.epoch, number: self.cursor.batches, len: self.len, fields };
        Ok((batch, slab))
    }
}
