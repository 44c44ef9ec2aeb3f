//! Measurements of one preparer thread: times, processor time, bytes, costs and timeline marks.
//!
//! In: start and end of each stage of a sample. Out: a [`CostRecord`] for the cost table, a [`Tally`] for the counters, [`Marks`]
//! for a timeline. Nothing here decides what is prepared.

use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_data::batch::{Sample, Value};
use feedline_data::cost::CostRecord;
use feedline_data::cpu_time::thread_cpu_time;
use feedline_data::cut::Cut;
use feedline_data::memory::Workspace;
use feedline_data::op::{ChainObserver, OpChain, WorkHint};
use feedline_order::{SampleId, SampleRequest};

use crate::metrics::{Marks, Metrics, OpMeasurement, Preparation, Tally, counts};
use crate::supply::{Keeping, Supply};

/// Reading the thread's CPU clock takes 0.2 us. It is read for the sample after one that took this long, and for every 16th other
/// sample.
const LONG: Duration = Duration::from_micros(500);
const MEASURE_EVERY: u64 = 16;

/// The measurements of one thread.
#[derive(Debug)]
pub(super) struct Bookkeeping {
    metrics: Arc<Metrics>,
    /// Stage times of the current sample.
    record: CostRecord,
    /// Counts that the shared counters do not contain yet, and marks if a timeline is being recorded.
    tally: Tally,
    marks: Marks,
    /// Number of attempts so far.
    tried: u64,
    /// The op that is running. Needed to blame a panic, which does not come back as an error.
    op: Option<usize>,
    /// Whether CPU time and bytes of this sample are measured, and whether its times are marked.
    is_measured: bool,
    is_recorded: bool,
    /// Start of the current stage.
    began: Instant,
    cpu_began: Option<Duration>,
    ops_time: Duration,
}

impl Bookkeeping {
    pub(super) fn new(metrics: Arc<Metrics>, ops: usize) -> Self {
        Self {
            metrics,
            record: CostRecord::default(),
            tally: Tally::new(ops),
            marks: Marks::default(),
            tried: 0,
            op: None,
            is_measured: false,
            is_recorded: false,
            began: Instant::now(),
            cpu_began: None,
            ops_time: Duration::ZERO,
        }
    }

    /// The op that is running.
    pub(super) fn op(&self) -> Option<usize> {
        self.op
    }

    /// Stage times of the current sample.
    pub(super) fn record(&self) -> &CostRecord {
        &self.record
    }

    /// The same, for the costs to add.
    pub(super) fn record_mut(&mut self) -> &mut CostRecord {
        &mut self.record
    }

    /// Starts a new attempt to prepare a sample.
    pub(super) fn begin_sample(&mut self) {
        self.op = None;
        if self.tally.is_due() {
            self.tally.flush(&self.metrics);
        }
        // `record` still holds the previous sample here: its cost is the best guess for this one.
        self.is_measured = counts() && (self.record.total() > LONG || self.tried.is_multiple_of(MEASURE_EVERY));
        self.tried += 1;
        self.record.clear();
    }

    /// Starts the loading stage.
    pub(super) fn begin_loading(&mut self) {
        self.began = Instant::now();
    }

    /// Starts the loading stage of a sample that was made within `time`, which has passed.
    pub(super) fn begin_made(&mut self, time: Duration) {
        let now = Instant::now();
        self.began = now.checked_sub(time).unwrap_or(now);
    }

    /// Ends the loading stage of a sample that comes with the ops before `cut` applied. Returns how long loading took.
    pub(super) fn loaded(
        &mut self,
        work_hint: WorkHint,
        cut: Cut,
        chain: &OpChain,
        request: SampleRequest,
    ) -> Duration {
        let now = Instant::now();
        let taken = now - self.began;
        self.cpu_began = self.is_measured.then(thread_cpu_time);
        self.is_recorded = self.metrics.recorder.is_on();
        if self.is_recorded {
            self.marks.begin();
            self.marks.mark(self.began);
            self.marks.mark(now);
        }
        if counts() {
            self.tally.add_loading(taken, 1);
        }
        self.record.add(taken, work_hint);
        // Ops before the cut ran elsewhere. They take no time here, but the record has one entry per stage.
        for op in 0..cut.0 {
            self.record.add(Duration::ZERO, chain.work_hint(op, request));
            if self.is_recorded {
                self.marks.mark(now);
            }
        }
        (self.began, self.ops_time) = (now, Duration::ZERO);
        taken
    }

    /// Counts samples that were filled together and took `taken` for all. The record has their average.
    pub(super) fn filled(&mut self, taken: Duration, samples: usize) {
        self.begin_sample();
        if counts() {
            self.tally.add_loading(taken, samples as u64);
        }
        self.record.add(taken / u32::try_from(samples.max(1)).unwrap_or(u32::MAX), WorkHint::Usual);
    }

    /// Whether the times of each sample are recorded for a timeline.
    pub(super) fn is_recording(&self) -> bool {
        self.metrics.recorder.is_on()
    }

    /// Ends the stage of one op.
    fn op_done(&mut self, op: usize, chain: &OpChain, request: SampleRequest, sample: &Sample<'_>) {
        let now = Instant::now();
        let taken = now - self.began;
        let cpu_now = self.is_measured.then(thread_cpu_time);
        if counts() {
            // Only the fields that the op works on count as its output.
            let measurement = cpu_now.zip(self.cpu_began).map(|(now, before)| {
                let on = chain.ops()[op].op().on();
                let is_on = |(name, _): &(&str, &Value<'_>)| on.names().any(|other| other == *name);
                let bytes_out = sample.values().filter(is_on).map(|(_, value)| value.content_bytes()).sum();
                OpMeasurement { cpu: now.saturating_sub(before), bytes_out }
            });
            self.tally.add_op(op, taken, measurement);
        }
        self.ops_time += taken;
        self.record.add(taken, chain.work_hint(op, request));
        if self.is_recorded {
            self.marks.mark(now);
        }
        // The next op starts where this one ended, so each stage reads each clock once.
        (self.began, self.cpu_began) = (now, cpu_now);
    }

    /// Time spent in ops so far.
    pub(super) fn ops_time(&self) -> Duration {
        self.ops_time
    }

    /// Ends a sample whose slot is filled.
    pub(super) fn end_sample(&mut self, preparation: Preparation, id: SampleId) {
        if self.is_recorded {
            self.marks.mark(Instant::now());
            self.marks.end(preparation, id);
        }
    }

    /// Adds the counts since the last call to the shared counters.
    pub(super) fn flush(&mut self) {
        if counts() {
            self.tally.flush(&self.metrics);
        }
        self.metrics.recorder.add_samples(&mut self.marks);
    }
}

/// Observes the ops of one sample: measures each, and lets the supply cache the sample at its cut.
pub(super) struct SampleObserver<'a> {
    pub books: &'a mut Bookkeeping,
    pub chain: &'a OpChain,
    pub request: SampleRequest,
    pub supply: &'a dyn Supply,
    pub keeping: Option<Keeping>,
}

impl SampleObserver<'_> {
    /// Offers the sample at `cut` to the supply, which keeps it if this is its cut.
    pub(super) fn keep_at(&self, cut: Cut, sample: &Sample<'_>, workspace: &mut Workspace) {
        if let Some(keeping) = self.keeping.filter(|keeping| keeping.cut == cut) {
            self.supply.keep(keeping, self.request, sample, workspace, &self.books.metrics);
        }
    }
}

impl ChainObserver for SampleObserver<'_> {
    fn before(&mut self, op: usize, sample: &Sample<'_>, workspace: &mut Workspace) {
        // Before op number `op` the sample is at cut `op`.
        self.keep_at(Cut(op), sample, workspace);
        self.books.op = Some(op);
    }

    fn after(&mut self, op: usize, sample: &Sample<'_>) {
        self.books.op_done(op, self.chain, self.request, sample);
    }
}
