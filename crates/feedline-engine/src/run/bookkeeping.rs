//! What one preparer thread books while it prepares a sample: times, processor time, bytes, costs, marks.
//!
//! In: the beginning and the end of each stage of a sample. Out: a [`CostRecord`] for the table of costs, a [`Tally`] for the counters,
//! [`Marks`] for a timeline. Nothing here decides what is prepared.

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

/// A look at the processor's clock takes 0.2 us: it is for samples behind one that took this long, and for the first of 16 others.
const LONG: Duration = Duration::from_micros(500);
const LOOK_EVERY: u64 = 16;

/// The books of one thread.
#[derive(Debug)]
pub(super) struct Bookkeeping {
    metrics: Arc<Metrics>,
    /// What the sample at work took so far.
    record: CostRecord,
    /// What was done and is not told yet, and when, where that is asked for.
    tally: Tally,
    marks: Marks,
    /// Samples that were tried.
    tried: u64,
    /// The op at work, for failures that do not come back as errors.
    op: Option<usize>,
    /// Whether processor time and bytes of this sample are looked at, and whether its times are marked.
    is_looked_at: bool,
    is_recorded: bool,
    /// When the stage at work began.
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
            is_looked_at: false,
            is_recorded: false,
            began: Instant::now(),
            cpu_began: None,
            ops_time: Duration::ZERO,
        }
    }

    /// The op at work.
    pub(super) fn op(&self) -> Option<usize> {
        self.op
    }

    /// What the sample took.
    pub(super) fn record(&self) -> &CostRecord {
        &self.record
    }

    /// Another try to prepare a sample begins.
    pub(super) fn begin_sample(&mut self) {
        self.op = None;
        if self.tally.is_due() {
            self.tally.tell(&self.metrics);
        }
        self.is_looked_at = counts() && (self.record.total() > LONG || self.tried.is_multiple_of(LOOK_EVERY));
        self.tried += 1;
        self.record.clear();
    }

    /// Its loading begins.
    pub(super) fn begin_loading(&mut self) {
        self.began = Instant::now();
    }

    /// It is loaded, with the ops before `cut` done already; gives how long that took.
    pub(super) fn loaded(
        &mut self,
        work_hint: WorkHint,
        cut: Cut,
        chain: &OpChain,
        request: SampleRequest,
    ) -> Duration {
        let now = Instant::now();
        let taken = now - self.began;
        self.cpu_began = self.is_looked_at.then(thread_cpu_time);
        self.is_recorded = self.metrics.recorder.is_on();
        if self.is_recorded {
            self.marks.begin();
            self.marks.mark(self.began);
            self.marks.mark(now);
        }
        if counts() {
            self.tally.add_loading(taken);
        }
        self.record.add(taken, work_hint);
        for op in 0..cut.0 {
            self.record.add(Duration::ZERO, chain.work_hint(op, request));
            if self.is_recorded {
                self.marks.mark(now);
            }
        }
        (self.began, self.ops_time) = (now, Duration::ZERO);
        taken
    }

    /// An op has changed the sample.
    fn op_done(&mut self, op: usize, chain: &OpChain, request: SampleRequest, sample: &Sample<'_>) {
        let now = Instant::now();
        let taken = now - self.began;
        let cpu_now = self.is_looked_at.then(thread_cpu_time);
        if counts() {
            let look = cpu_now.zip(self.cpu_began).map(|(now, before)| {
                let on = chain.ops()[op].op().on();
                let is_on = |(name, _): &(&str, &Value<'_>)| on.names().any(|other| other == *name);
                let bytes_out = sample.values().filter(is_on).map(|(_, value)| value.content_bytes()).sum();
                OpMeasurement { cpu: now.saturating_sub(before), bytes_out }
            });
            self.tally.add_op(op, taken, look);
        }
        self.ops_time += taken;
        self.record.add(taken, chain.work_hint(op, request));
        if self.is_recorded {
            self.marks.mark(now);
        }
        (self.began, self.cpu_began) = (now, cpu_now);
    }

    /// The time of the ops so far.
    pub(super) fn ops_time(&self) -> Duration {
        self.ops_time
    }

    /// The sample is in its slot.
    pub(super) fn end_sample(&mut self, preparation: Preparation, id: SampleId) {
        if self.is_recorded {
            self.marks.mark(Instant::now());
            self.marks.end(preparation, id);
        }
    }

    /// Tells what was done since the last time.
    pub(super) fn tell(&mut self) {
        if counts() {
            self.tally.tell(&self.metrics);
        }
        self.metrics.recorder.add_samples(&mut self.marks);
    }
}

/// Watches the ops of one sample: books them, and hands the sample to the supply where that wants to keep it.
pub(super) struct Watching<'a> {
    pub books: &'a mut Bookkeeping,
    pub chain: &'a OpChain,
    pub request: SampleRequest,
    pub supply: &'a dyn Supply,
    pub keeping: Option<Keeping>,
}

impl Watching<'_> {
    /// Lets the supply keep a sample as it is at `cut`, if that is where it wants to.
    pub(super) fn keep_at(&self, cut: Cut, sample: &Sample<'_>, workspace: &mut Workspace) {
        if let Some(keeping) = self.keeping.filter(|keeping| keeping.cut == cut) {
            self.supply.keep(keeping, self.request, sample, workspace, &self.books.metrics);
        }
    }
}

impl ChainObserver for Watching<'_> {
    fn before(&mut self, op: usize, sample: &Sample<'_>, workspace: &mut Workspace) {
        self.keep_at(Cut(op), sample, workspace);
        self.books.op = Some(op);
    }

    fn after(&mut self, op: usize, sample: &Sample<'_>) {
        self.books.op_done(op, self.chain, self.request, sample);
    }
}
