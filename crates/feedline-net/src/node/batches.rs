//! Batches of one rank, from the node of its machine, in the order of its plan.
//!
//! Always true: the stream equals that of a run in this process from the same cursor (law 3). Only a few batches that the user
//! keeps are memory of the node; the others are copied.

use std::any::Any;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use feedline_data::batch::{Batch, BatchField, FieldData, FieldForm, Unslotted};
use feedline_data::plan::Plan;
use feedline_engine::carousel::BadSlot;
use feedline_engine::error::Error;
use feedline_engine::loader::{Delivered, Deliverer};
use feedline_engine::machine::CoreWeight;
use feedline_engine::metrics::{Metrics, Phase, QueueSnapshot, Substitute};
use feedline_engine::state::{Cursor, Received};
use feedline_memory::{Mutex, Pool, Slab, Span};

use super::attached::{AttachError, Attached, Lent};
use super::message::{BatchMessage, FromNode, Route};

/// Batches to request at once, so that the next is there when it is needed.
pub(super) const BATCHES_AHEAD: u64 = 2;
/// Batches in the node's memory that the user may keep. Further ones are copied.
const MAX_KEPT: usize = 3;

/// Receives the batches of one rank from a node.
#[derive(Debug)]
pub struct NodeBatches {
    attached: Attached,
    plan: Arc<Plan>,
    metrics: Arc<Metrics>,
    progress: Mutex<BatchesState>,
    /// Held while a consumer waits for the next batch, and while the place in the stream changes.
    turn: Mutex<()>,
    /// Memory for copied batches.
    pool: Pool,
}

#[derive(Debug)]
struct BatchesState {
    cursor: Cursor,
    /// The next batch, if it has arrived.
    next: Option<Lent>,
    /// Leases of batches that were taken.
    kept: Vec<Weak<dyn Any + Send + Sync>>,
    waited: Duration,
    has_delivered: bool,
    is_closed: bool,
}

impl NodeBatches {
    /// Attaches to the node at `socket`, continuing from `cursor`. Counts in `metrics`.
    pub fn attach(
        socket: &Path,
        plan: &Arc<Plan>,
        cursor: &Cursor,
        metrics: &Arc<Metrics>,
        weight: CoreWeight,
    ) -> Result<Self, AttachError> {
        let route = Route::share(cursor, plan);
        let attached = Attached::attach(socket, plan, plan.partition_key().0, route, weight)?;
        let progress = BatchesState {
            cursor: cursor.clone(),
            next: None,
            kept: Vec::new(),
            waited: Duration::ZERO,
            has_delivered: false,
            is_closed: false,
        };
        let pool = Pool::new(plan.layout().slab().clone(), 1);
        let (plan, metrics) = (Arc::clone(plan), Arc::clone(metrics));
        Ok(Self { attached, plan, metrics, progress: Mutex::new(progress), turn: Mutex::default(), pool })
    }

    /// The fields of a batch of `len` samples. `span` maps a range to memory.
    fn fields(&self, len: usize, keys: &[String], span: impl Fn(std::ops::Range<usize>) -> Span) -> Vec<BatchField> {
        let slab = self.plan.layout().slab();
        let field = |(name, form): &(Arc<str>, FieldForm)| {
            let data = match form {
                FieldForm::Region { region, dtype, shape } => {
                    // Slots lie one behind the other in a region, so the first `len` of them are one range, also in a last short
                    // batch.
                    let start = slab.region_range(*region).start;
                    let shape = std::iter::once(len).chain(shape.iter().copied()).collect();
                    let span = span(start..start + len * slab.slot_bytes(*region));
                    FieldData::Region { span, dtype: *dtype, shape }
                }
                _ => FieldData::List(keys.iter().cloned().map(Unslotted::Text).collect()),
            };
            BatchField { name: Arc::clone(name), data }
        };
        self.plan.layout().fields().iter().map(field).collect()
    }

    /// A copy of the first `len` slots of a batch.
    fn copy(&self, lent: &Lent, len: usize) -> Result<Arc<Slab>, Error> {
        let layout = self.pool.layout();
        let open = self.pool.open().ok_or(Error::OutOfMemory { bytes: layout.total_bytes() })?;
        let mut writer = open.claim(0..layout.slots()).expect("a new slab is free");
        let span = Span::of_view(&lent.view, 0..layout.total_bytes());
        for slot in 0..len {
            for (region, bytes) in writer.slot_mut(slot).into_iter().enumerate() {
                bytes.copy_from_slice(&span.bytes()[layout.slot_range(region, slot)]);
            }
        }
        drop(writer);
        Ok(Arc::new(open.seal().expect("the writer is gone")))
    }
}

impl Deliverer for NodeBatches {
    fn wait_within(&self, timeout: Duration) -> Result<bool, Error> {
        let _turn = self.turn.lock();
        let progress = self.progress.lock();
        if progress.is_closed {
            return Err(Error::Closed);
        }
        if progress.next.is_some() {
            return Ok(true);
        }
        // The state is not locked while waiting, so `queue` and `close` answer meanwhile. `turn` keeps other consumers out.
        drop(progress);
        let began = Instant::now();
        let lent = self.attached.next_within(BATCHES_AHEAD, timeout)?;
        let mut progress = self.progress.lock();
        progress.waited += began.elapsed();
        progress.next = lent;
        Ok(progress.next.is_some())
    }

    fn take(&self) -> Result<Option<Delivered>, Error> {
        let mut progress = self.progress.lock();
        let Some(lent) = progress.next.take() else { return Ok(None) };
        let FromNode::Batch(BatchMessage { samples, keys, bad, bytes, .. }) = &lent.message else {
            return Err(Error::Production { reason: "the node sent something else than a batch".to_owned() });
        };
        let before = progress.cursor.clone().normalised(&self.plan);
        let len = self.plan.share(before.offset).batch_len(before.batches);
        // Both numbers come from another process. The mapped memory is only read after they agree with the plan.
        if (*samples, *bytes) != (len as u64, self.plan.layout().slab().total_bytes() as u64) {
            return Err(Error::Production { reason: format!("the node sent {samples} samples, not {len}") });
        }
        // A lease with no strong references is one whose arrays the user has dropped.
        progress.kept.retain(|lease| lease.strong_count() > 0);
        let fields = if progress.kept.len() < MAX_KEPT {
            let lease: Arc<dyn Any + Send + Sync> = Arc::clone(&lent.lease) as _;
            progress.kept.push(Arc::downgrade(&lease));
            self.fields(len, keys, |range| Span::of_view(&lent.view, range).keeping(Arc::clone(&lease)))
        } else {
            let slab = self.copy(&lent, len)?;
            self.fields(len, keys, |range| Span::of_slab(&slab, range))
        };
        let substitutes: Vec<Substitute> = bad.iter().cloned().map(|bad| BadSlot::from(bad).substitute).collect();
        let batch = Batch { epoch: before.epoch, number: before.batches, len, fields };
        let substituted = before.substituted + substitutes.len() as u64;
        let after = Cursor { batches: before.batches + 1, substituted, ..before.clone() }.normalised(&self.plan);
        // The wait for the first batch after a start or a jump includes the start of the run, so it has its own cause.
        let cause = if progress.has_delivered { Phase::Prepare } else { Phase::Start };
        self.metrics.stalls.add(cause, std::mem::take(&mut progress.waited));
        self.metrics.add_substitutes(&substitutes);
        self.metrics.add_batch(&batch);
        progress.has_delivered = true;
        progress.cursor = after.clone();
        Ok(Some(Delivered { batch, after: Received::Stream(after), arrived: None }))
    }

    fn seek(&self, received: &Received) {
        let cursor = received.cursor().clone();
        let _turn = self.turn.lock();
        let route = Route::share(&cursor, &self.plan);
        let mut progress = self.progress.lock();
        // A batch that has arrived belongs to the old place. Dropping it returns its lease.
        (progress.next, progress.has_delivered) = (None, false);
        progress.cursor = cursor;
        // The next wait notices a node that is gone.
        self.attached.change(route).unwrap_or_default();
    }

    fn queue(&self) -> QueueSnapshot {
        QueueSnapshot { ready_batches: usize::from(self.progress.lock().next.is_some()), ..QueueSnapshot::default() }
    }

    fn workers(&self) -> usize {
        0
    }

    fn close(&self) {
        let mut progress = self.progress.lock();
        progress.is_closed = true;
        progress.next = None;
    }
}
