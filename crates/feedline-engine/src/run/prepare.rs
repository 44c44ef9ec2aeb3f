//! The work of a preparer thread on a task: load each sample, run the ops, fill the slot.
//!
//! In: a task. Out: a prepared sample for each slot, or a failure as a value (law 6). A panic while a sample is loaded or prepared
//! is a failure of that sample, not of the process.

use std::error::Error as StdError;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use feedline_codec::CodecError;
use feedline_data::batch::{FieldForm, Memory, Sample, Slot, Tensor, Unslotted, Value};
use feedline_data::cost::Costs;
use feedline_data::cut::Cut;
use feedline_data::dtype::Dtype;
use feedline_data::failure::{SampleFailure, chain};
use feedline_data::memory::{BatchNeed, Budget, Cancel, HeldBytes, NoMemory, Patience, Working, Workspace};
use feedline_data::op::{FailedOp, OpError, OpRange, WorkHint};
use feedline_data::plan::{INDEX_FIELD, KEY_FIELD, OnError, PADDED_FIELD, Plan};
use feedline_data::source::DATASET_FIELD;
use feedline_order::{EpochSequence, Place, SampleId, SampleRequest};

use super::bookkeeping::{Bookkeeping, SampleObserver};
use super::worker_pool::MAX_PER_CORE;
use crate::metrics::{Metrics, Preparation, Substitute};
use crate::slot_ref::SlotRef;
use crate::supply::{Loading, Made, MadeContent, MakeError, Making, Reading, Supply, Task};

/// Number of substitutes to try for one bad sample.
const SUBSTITUTE_ATTEMPTS: u32 = 100;

/// The result of one slot.
#[derive(Debug)]
pub(super) struct Prepared {
    pub slot: usize,
    /// The values that are not in the slot: those without a fixed shape, or all values if the task had no slot to write to.
    pub loose: Vec<Unslotted>,
    /// Set if the slot contains another sample, because its own was bad.
    pub substitute: Option<Substitute>,
}

/// The results of a task, and the time it took.
#[derive(Debug)]
pub(super) struct TaskReport {
    pub prepared: Vec<Prepared>,
    /// The failure that ended the task early.
    pub failure: Option<Arc<SampleFailure>>,
    /// Time spent loading.
    pub read: Duration,
    /// Time spent in ops.
    pub ops: Duration,
    /// Time spent waiting for memory. Waits during loading and in ops are part of `read` and `ops` too.
    pub memory: Duration,
    /// Booked bytes of the loose values. They stay booked until they are copied into the slot or the batch is delivered.
    pub kept: HeldBytes,
}

impl TaskReport {
    /// An empty report. The memory of results will be booked in `budget`.
    pub(super) fn new(budget: &Arc<Budget>) -> Self {
        let [read, ops, memory] = [Duration::ZERO; 3];
        Self { prepared: Vec::new(), failure: None, read, ops, memory, kept: HeldBytes::new(budget, 0) }
    }
}

/// How the work on a task ended.
#[derive(Debug)]
pub(super) enum Outcome {
    Done(Box<TaskReport>),
    /// Memory is short, and the next sample is slow or not due. Contains the samples prepared so far; the task keeps the others.
    PutBack(Box<TaskReport>),
    /// The run was closed.
    Closed,
}

/// Prepares samples on one thread.
#[derive(Debug)]
pub(super) struct Preparer {
    pub plan: Arc<Plan>,
    pub supply: Arc<dyn Supply>,
    pub metrics: Arc<Metrics>,
    pub budget: Arc<Budget>,
    pub costs: Arc<Costs>,
    pub workspace: Workspace,
    /// The number of the thread.
    pub number: usize,
    /// The number of the run, from `Budget::number_run`.
    pub run: u64,
    /// The measurements of this thread.
    pub books: Bookkeeping,
}

/// Why an attempt ended.
enum Stop {
    Cancelled,
    /// Memory is short. Try again with this many bytes reserved at the start.
    ShortOfMemory(u64),
    /// The whole sample, which the cache needs, cannot be decoded. Try again without caching.
    Unkept,
    /// The seek index is damaged or does not match the loaded bytes. Try again without the index.
    Stale,
    Failed(Arc<SampleFailure>),
}

/// One attempt to prepare a sample.
#[derive(Clone, Copy)]
struct Attempt {
    request: SampleRequest,
    place: Place,
    reading: Reading,
    /// Whether the supply may cache the sample.
    may_keep: bool,
    /// The slot and the thread, for a timeline.
    preparation: Preparation,
}

impl Preparer {
    /// Creates the workspace of a thread. The threads that a run starts with may together keep an eighth of the budget in buffers
    /// for reuse. All later threads together may keep less than that.
    pub(super) fn workspace(plan: &Plan, budget: &Budget, number: usize, cancel: Cancel) -> Workspace {
        let workers = plan.config().num_workers.count();
        // Later threads share another eighth. It is divided by the largest possible number of threads, so they never exceed it.
        let sharing = if number < workers { workers } else { workers * MAX_PER_CORE };
        let spare_limit = usize::try_from(budget.limit() / 8 / sharing as u64).unwrap_or(usize::MAX);
        if plan.config().simd {
            Workspace::new(cancel, spare_limit)
        } else {
            Workspace::without_simd(cancel, spare_limit)
        }
    }

    /// Prepares all slots of a task. Not inlined, so that profilers show its cost.
    #[inline(never)]
    pub(super) fn run(&mut self, task: &mut Task) -> Outcome {
        let outcome = self.fill_all(task);
        self.costs.flush(self.books.record_mut());
        self.books.flush();
        outcome
    }

    /// Fills the slots of a task one by one, until one fails or memory is short.
    fn fill_all(&mut self, task: &mut Task) -> Outcome {
        let visits = self.plan.sequence().epoch(task.epoch_path.epoch);
        let mut report = Box::new(TaskReport::new(&self.budget));
        if self.fill_rows(task, &visits, &mut report) {
            return Outcome::Done(report);
        }
        let mut made = if self.supply.makes_samples() {
            let requests = task.requests(&self.plan);
            let slots = task.slots.clone();
            match self.make(task, slots, &requests, &visits) {
                Ok(made) => made.into_iter(),
                Err(Stop::Failed(failure)) => {
                    report.failure = Some(failure);
                    return Outcome::Done(report);
                }
                Err(_) => return Outcome::Closed,
            }
        } else {
            Vec::new().into_iter()
        };
        for slot in task.slots.clone() {
            match self.fill(task, slot, &visits, made.next(), &mut report) {
                Ok(prepared) => report.prepared.push(prepared),
                Err(Stop::ShortOfMemory(_)) => {
                    // The slots before this one are done and in the report.
                    task.slots.start = slot;
                    return Outcome::PutBack(report);
                }
                // `attempt` handles `Stale` and `Unkept` itself, so this is a cancelled run.
                Err(Stop::Cancelled | Stop::Stale | Stop::Unkept) => return Outcome::Closed,
                // The rest of the task is skipped: a batch with a failure is not delivered.
                Err(Stop::Failed(failure)) => {
                    report.failure = Some(failure);
                    break;
                }
            }
        }
        Outcome::Done(report)
    }

    /// Fills one slot with its sample. If the sample is bad and the plan allows it, fills the slot with a substitute.
    fn fill(
        &mut self,
        task: &mut Task,
        slot: usize,
        visits: &EpochSequence,
        made: Option<Made>,
        report: &mut TaskReport,
    ) -> Result<Prepared, Stop> {
        let wanted = task.request(&self.plan, visits, slot);
        let place = wanted.0;
        if let Some(Made { time, content: MadeContent::InSlot(payload) }) = &made
            && payload.is_empty()
            && self.plan.ops().is_empty()
        {
            return Ok(self.fill_made(task, slot, wanted.1, *time, report));
        }
        let first = match self.attempt(task, slot, wanted, visits, made, report) {
            Ok(loose) => return Ok(Prepared { slot, loose, substitute: None }),
            Err(Stop::Failed(failure)) => failure,
            Err(stop) => return Err(stop),
        };
        // Indices in the dataset's own form belong to the whole batch, so no other sample can be requested with them.
        if self.plan.settings().on_error == OnError::Raise || task.has_own_indices() {
            return Err(Stop::Failed(first));
        }
        for attempt in 0..SUBSTITUTE_ATTEMPTS {
            let other = task.substitute(&self.plan, visits, place, attempt);
            match self.attempt(task, slot, other, visits, None, report) {
                Ok(loose) => {
                    let by = other.1.id;
                    tracing::warn!(bad = %first.key, reason = %chain(&*first.cause), "replaced a bad sample");
                    let by = self.plan.source().key(by).into_owned();
                    let substitute = Substitute { failure: first, by };
                    return Ok(Prepared { slot, loose, substitute: Some(substitute) });
                }
                Err(Stop::Failed(_)) => {}
                Err(stop) => return Err(stop),
            }
        }
        Err(Stop::Failed(first))
    }

    /// Fills a slot that already contains its whole sample. It needs no memory and cannot fail, so most of [`Self::attempt`] is left
    /// out. That matters for samples of a few microseconds.
    fn fill_made(
        &mut self,
        task: &Task,
        slot: usize,
        request: SampleRequest,
        time: Duration,
        report: &mut TaskReport,
    ) -> Prepared {
        self.books.begin_sample();
        self.books.begin_made(time);
        report.read += self.books.loaded(WorkHint::Usual, Cut(0), self.plan.chain(), request);
        if let Some(predicted) = self.costs.record(&*self.plan, request, self.books.record_mut()) {
            self.metrics.costs.add(predicted, self.books.record().total());
        }
        let at = SlotRef { batch: task.batch, slot };
        self.books.end_sample(Preparation { at, asked: task.asked, thread: self.number }, request.id);
        let empty = Unslotted::Array { dtype: Dtype::U8, shape: Vec::new(), bytes: Vec::new() };
        Prepared { slot, loose: vec![empty], substitute: None }
    }

    /// Prepares a sample. Starts again if that can help: with more memory reserved, without the seek index, or without caching.
    fn attempt(
        &mut self,
        task: &mut Task,
        slot: usize,
        (place, request): (Place, SampleRequest),
        visits: &EpochSequence,
        mut made: Option<Made>,
        report: &mut TaskReport,
    ) -> Result<Vec<Unslotted>, Stop> {
        let (mut allotment, mut reading, mut may_keep) = (0, Reading::Trimmed, true);
        loop {
            // A substitute was not made with the task. A sample whose memory was refused was dropped.
            if made.is_none() && self.supply.makes_samples() {
                made = self.make(task, slot..slot + 1, &[request], visits)?.pop();
            }
            // A task with a cost is a slow sample. Its batch may not be open yet, so it must not block for memory (see
            // `strict_order.rs`).
            let patience = if task.cost.is_none() { Patience::Waits } else { Patience::None };
            let working = self.budget.begin(BatchNeed { run: self.run, batch: task.batch.0 }, slot, patience);
            let preparation =
                Preparation { at: SlotRef { batch: task.batch, slot }, asked: task.asked, thread: self.number };
            let how = Attempt { request, place, reading, may_keep, preparation };
            let regions = task.writer.as_mut().map(|writer| writer.slot_mut(slot));
            match self.attempt_with(allotment, working, how, regions, made.take(), report) {
                // The first attempt reserves memory as it goes. Each further attempt reserves at the start what the one before
                // lacked. If that is refused too, the sample is not due, and its task is put back.
                Err(Stop::ShortOfMemory(bytes)) if patience == Patience::Waits && allotment < bytes => {
                    allotment = bytes;
                }
                Err(Stop::Stale) => reading = Reading::Plain,
                Err(Stop::Unkept) => may_keep = false,
                other => return other,
            }
        }
    }

    /// One attempt, with `allotment` bytes reserved at the start. A panic becomes a failure of the sample.
    fn attempt_with(
        &mut self,
        allotment: u64,
        working: Working,
        how: Attempt,
        regions: Option<Vec<&mut [u8]>>,
        made: Option<Made>,
        report: &mut TaskReport,
    ) -> Result<Vec<Unslotted>, Stop> {
        let Attempt { request, place, .. } = how;
        self.books.begin_sample();
        self.workspace.begin(working, allotment).map_err(|error| self.no_memory(error, request, place))?;
        let outcome = catch_unwind(AssertUnwindSafe(|| self.prepare(regions, how, made, report)));
        let kept = outcome.as_ref().ok().and_then(|result| result.as_ref().ok());
        // Values outside the slot stay in memory after this attempt. Their booked bytes move from the workspace to the report.
        let kept: usize = kept.map_or(0, |loose| loose.iter().map(Unslotted::content_bytes).sum());
        report.kept.take_over(kept as u64);
        let waited = self.workspace.end_keeping(kept);
        report.memory += waited;
        // The measured times include waits for memory. With long waits they say little about the cost of the sample.
        if matches!(outcome, Ok(Ok(_))) && waited < self.books.record().total() / 16 {
            let predicted = self.costs.record(&*self.plan, request, self.books.record_mut());
            if let Some(predicted) = predicted {
                self.metrics.costs.add(predicted, self.books.record().total());
            }
        }
        outcome.unwrap_or_else(|panic| {
            // A panic may have left the buffers in any state.
            self.workspace = Self::workspace(&self.plan, &self.budget, self.number, self.workspace.cancel().clone());
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
            // Loading may panic too. The failure names the op, if one was running.
            let text = format!("the code panicked, which is a bug: {}", text.unwrap_or_default());
            Err(self.failure(request, place, text.into()))
        })
    }

    /// Loads a sample, runs the ops and fills the slot.
    fn prepare(
        &mut self,
        regions: Option<Vec<&mut [u8]>>,
        how: Attempt,
        made: Option<Made>,
        report: &mut TaskReport,
    ) -> Result<Vec<Unslotted>, Stop> {
        let Attempt { request, place, reading, may_keep, preparation } = how;
        let plan = Arc::clone(&self.plan);
        let mut sample = declared(&plan, regions);
        let work_hint = self.supply.work_hint(request);
        match &made {
            Some(made) => self.books.begin_made(made.time),
            None => self.books.begin_loading(),
        }
        // Not after `Stale`: a sample to cache is loaded with its seek index, which would be wrong again.
        let may_keep = may_keep && reading == Reading::Trimmed;
        let keeping = if may_keep { self.supply.keeps(request, &self.metrics) } else { None };
        let loaded = match made {
            Some(made) => Ok(self.take_made(made, &mut sample, request, place)?),
            None => self.supply.load(Loading {
                request,
                // A cached sample must be whole, because other epochs need other parts of it.
                reading: if keeping.is_some() { Reading::Complete } else { reading },
                sample: &mut sample,
                workspace: &mut self.workspace,
                metrics: &self.metrics,
            }),
        };
        let cut = loaded.map_err(|error| match error {
            error if let Some(memory) = error.no_memory() => self.no_memory(memory, request, place),
            other => self.failure(request, place, Box::new(other)),
        })?;
        if plan.chain().reads_key() {
            sample.put(KEY_FIELD, Value::Text(plan.source().key(request.id).into_owned()));
        }
        report.read += self.books.loaded(work_hint, cut, plan.chain(), request);
        // For the same reason the ops before the cut of the cache must not skip pixels that this epoch does not need.
        let range = OpRange { ops: cut.0..plan.ops().len(), whole: 0..keeping.map_or(0, |keeping| keeping.cut.0) };
        let (books, supply) = (&mut self.books, &*self.supply);
        let mut observer = SampleObserver { books, chain: plan.chain(), request, supply, keeping };
        let ran = plan.chain().run(&range, request, &mut sample, &mut self.workspace, &mut observer);
        // The observer sees the sample before each op, so not at the cut after the last one. A sample that was loaded at that cut
        // is cached already.
        if ran.is_ok() && cut.0 < range.ops.end {
            observer.keep_at(Cut(range.ops.end), &sample, &mut self.workspace);
        }
        report.ops += self.books.ops_time();
        ran.map_err(|FailedOp { op, cause }| match cause {
            // The file may have changed since its seek index was built. Read it whole.
            OpError::Codec(CodecError::Index(_)) if reading == Reading::Trimmed => Stop::Stale,
            // The damage may lie outside the part that this epoch needs. Without caching only that part is decoded.
            OpError::Codec(error) if range.whole.contains(&op) && error.is_about_data() => Stop::Unkept,
            OpError::Cancelled(_) | OpError::Codec(CodecError::Cancelled) => Stop::Cancelled,
            OpError::Memory(memory) => self.no_memory(memory, request, place),
            other => self.failure(request, place, Box::new(other)),
        })?;
        let finished = self.finish(sample, request.id, place);
        let finished = finished.map_err(|error| self.failure(request, place, Box::new(error)))?;
        self.books.end_sample(preparation, request.id);
        Ok(finished)
    }

    /// Makes samples of a task, straight into their slots where possible.
    fn make(
        &mut self,
        task: &mut Task,
        slots: Range<usize>,
        samples: &[SampleRequest],
        visits: &EpochSequence,
    ) -> Result<Vec<Made>, Stop> {
        let (first, cancel) = (slots.start, self.workspace.cancel().clone());
        let made = self.supply.make(Making { worker: self.number, samples, slots, task, cancel: &cancel });
        made.map_err(|error| {
            let at = match error {
                MakeError::Cancelled => return Stop::Cancelled,
                MakeError::WorkerLost { sample, .. } => sample.min(samples.len() - 1),
                MakeError::Answer { .. } => 0,
            };
            let place = task.request(&self.plan, visits, first + at).0;
            self.failure(samples[at], place, Box::new(error))
        })
    }

    /// Puts a sample that was made into its field.
    fn take_made(
        &mut self,
        made: Made,
        sample: &mut Sample<'_>,
        request: SampleRequest,
        place: Place,
    ) -> Result<Cut, Stop> {
        let bytes = match made.content.into_bytes() {
            Ok(bytes) => bytes,
            Err(cause) => return Err(self.failure_by(request, place, cause)),
        };
        // Not reserved: the bytes exist already, and a sample that is dropped for lack of memory could not be made again if its worker
        // has a state. `attempt_with` books them with the batch.
        sample.put(DATASET_FIELD, Value::Bytes(Memory::from(bytes).into()));
        Ok(Cut(0))
    }

    /// Adds the fields `index`, `padded` and `key` if they are delivered. Moves values with a fixed shape into the slot and returns
    /// the others.
    fn finish(
        &mut self,
        mut sample: Sample<'_>,
        id: SampleId,
        place: Place,
    ) -> Result<Vec<Unslotted>, feedline_data::batch::FieldError> {
        for name in self.plan.delivered() {
            match &**name {
                INDEX_FIELD => put_scalar(&mut sample, name, Dtype::I64, &(id.0 as i64).to_ne_bytes()),
                PADDED_FIELD => put_scalar(&mut sample, name, Dtype::Bool, &[u8::from(place.is_padding)]),
                KEY_FIELD => sample.put(name, Value::Text(self.plan.source().key(id).into_owned())),
                _ => {}
            }
        }
        sample.retain(self.plan.delivered(), &mut self.workspace);
        sample.finish(&mut self.workspace)
    }

    fn no_memory(&self, error: NoMemory, request: SampleRequest, place: Place) -> Stop {
        match error {
            NoMemory::Cancelled(_) => Stop::Cancelled,
            NoMemory::NotNow { bytes } => Stop::ShortOfMemory(bytes),
            other => self.failure(request, place, Box::new(other)),
        }
    }

    fn failure(&self, request: SampleRequest, place: Place, cause: Box<dyn StdError + Send + Sync>) -> Stop {
        self.failure_by(request, place, cause.into())
    }

    fn failure_by(&self, request: SampleRequest, place: Place, cause: Arc<dyn StdError + Send + Sync>) -> Stop {
        let (source, id) = (self.plan.source(), request.id);
        let (path, range) = source.address(id).unzip();
        Stop::Failed(Arc::new(SampleFailure {
            id,
            key: source.key(id).into_owned(),
            path,
            range: range.flatten(),
            epoch: request.epoch,
            position: place.position,
            op: self.books.op().map(|number| Arc::clone(self.plan.ops()[number].name())),
            cause,
        }))
    }
}

fn put_scalar(sample: &mut Sample<'_>, name: &str, dtype: Dtype, bytes: &[u8]) {
    sample.put(name, Value::Tensor(Tensor::new(dtype, Vec::new(), bytes.to_vec().into())));
}

/// Returns an empty sample with all delivered fields declared. `regions` are the bytes of its slot, one slice per region. Without
/// them all values stay in memory of their own.
fn declared<'s>(plan: &'s Plan, regions: Option<Vec<&'s mut [u8]>>) -> Sample<'s> {
    let mut sample = if regions.is_some() { Sample::new() } else { Sample::apart() };
    let mut regions: Vec<Option<&mut [u8]>> = regions.into_iter().flatten().map(Some).collect();
    for (name, form) in plan.layout().fields() {
        let slot = match form {
            FieldForm::Region { region, dtype, shape } => {
                let bytes = regions.get_mut(*region).and_then(Option::take);
                Some(Slot { dtype: *dtype, shape, bytes })
            }
            FieldForm::Stacked | FieldForm::List => None,
        };
        sample.declare(name, slot);
    }
    sample
}
