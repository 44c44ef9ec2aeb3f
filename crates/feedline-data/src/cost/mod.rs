//! The cost of samples: measured during preparation, predicted before their data is read.
//!
//! In: times of the stages of samples. A *stage* is the loading of a sample, or one op. Out: predictions for any sample of any
//! epoch. A prediction is the sum over stages. The random draw of an op decides how much work it has (`WorkHint`). The cost of a
//! stage is its recent average for this sample. For an unseen sample it is estimated from its size (stored bytes or elements,
//! whichever explains more), otherwise it is the average.
//!
//! `times.rs` holds the time per sample on each resource and finds the bottleneck.
//!
//! Always true: costs decide when work is done, never what is delivered.

mod file;
mod fit;
mod histogram;
mod mean;
mod record;
mod stage;
mod table;
mod times;
mod workload;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use feedline_memory::Mutex;

pub use file::CostFile;
pub use fit::Fit;
use histogram::Histogram;
use mean::Mean;
pub use record::CostRecord;
pub use stage::Size;
use stage::Stage;
use table::Table;
pub use times::{Resource, Times};
pub use workload::Workload;

use crate::op::WorkHint;
use feedline_order::Epoch;
use feedline_order::SampleRequest;

/// Slow samples that together make up less than this fraction of the work do not make a stream slow. They count as outliers.
const OUTLIER_SHARE: f64 = 0.1;
/// The table of single samples is created at the first sample that is slower than this. From then on all samples are recorded.
const RECORDED_FROM: Duration = Duration::from_micros(200);
/// If the average sample is quicker than this, only samples that once took longer than `RECORDED_FROM` are recorded, because
/// recording takes time, too.
const QUICK: Duration = Duration::from_micros(50);
/// Of fast samples one in this many is compared with its prediction, because predicting takes time too.
const COMPARED_EVERY: u64 = 16;
/// Number of samples after which the spread of costs is computed again. Sooner at the start.
const SPREAD_EVERY: u64 = 64;
/// In larger sources sizes are not looked up, because that opens each file.
const MAX_SIZES: u64 = 200_000;

/// The costs of a plan's samples.
#[derive(Debug)]
pub struct Costs {
    /// Loading, then each op.
    stages: Vec<Stage>,
    sample: Mean,
    totals: Histogram,
    samples: AtomicU64,
    /// Number of samples at the last call of [`Costs::has_news`].
    last_news: AtomicU64,
    /// The cost of each stage for each sample, by the kind of work. Created once samples are expensive enough. The inner `None`:
    /// the source is too large for a table.
    table: OnceLock<Option<Table>>,
    /// The spread, and the number of samples when it was computed.
    spread: Mutex<Option<(Spread, u64)>>,
    /// The total cost of each sample of one epoch, if it is recorded.
    watched: OnceLock<(Epoch, Table)>,
}

/// Statistics over all samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// The mean of recent samples.
    pub mean: Duration,
    /// The cost of the slowest samples, without hiccups.
    pub slowest: Duration,
}

impl Costs {
    /// Without any measurement.
    pub fn new(work: &dyn Workload) -> Self {
        Self {
            stages: (0..work.stages()).map(|_| Stage::default()).collect(),
            sample: Mean::default(),
            totals: Histogram::default(),
            samples: AtomicU64::new(0),
            last_news: AtomicU64::new(0),
            table: OnceLock::new(),
            spread: Mutex::default(),
            watched: OnceLock::new(),
        }
    }

    /// Adds the cost of a sample. Returns its prediction if it is compared: for every sample, or for some if samples are fast.
    /// Averages have the sample after the next [`Costs::flush`].
    pub fn record(&self, work: &dyn Workload, request: SampleRequest, record: &mut CostRecord) -> Option<Duration> {
        let (total, usual) = (record.total(), self.sample.get());
        let number = record.keep(total);
        let is_compared = !usual.is_zero() && (usual >= RECORDED_FROM || number.is_multiple_of(COMPARED_EVERY));
        // Before `learn`, so that a sample is not predicted from itself.
        let predicted = is_compared.then(|| self.sum(work, request, |number| record.work_hint(number)));
        self.learn(work, request, record, total);
        predicted
    }

    /// Adds samples to the averages that all threads share. Called once for each task: threads that write the same numbers after
    /// every sample slow each other down.
    pub fn flush(&self, record: &mut CostRecord) {
        let totals = record.totals();
        if totals.is_empty() {
            return;
        }
        self.samples.fetch_add(totals.len() as u64, Ordering::Relaxed);
        self.sample.add(totals.iter().sum(), totals.len() as u64);
        self.totals.add(totals);
        for (number, work_hint, sum, count) in record.stage_sums() {
            if let Some(stage) = self.stages.get(number) {
                stage.mean(work_hint).add(sum, count);
            }
        }
        record.forget_kept();
    }

    /// Records a sample by itself, if that can help.
    fn learn(&self, work: &dyn Workload, request: SampleRequest, record: &CostRecord, total: Duration) {
        if let Some((epoch, table)) = self.watched.get()
            && *epoch == request.epoch
            && let Some(row) = work.row_of(request.id)
        {
            table.record_time(row, 0, total);
        }
        // Without a slow sample there is nothing to schedule, and the table would only cost memory.
        if self.table.get().is_none() && total < RECORDED_FROM {
            return;
        }
        let table = self.table.get_or_init(|| Table::for_samples(work.samples(), columns(work)));
        let is_quick = self.is_quick();
        if is_quick && total < RECORDED_FROM && table.is_none() {
            return;
        }
        let Some(row) = work.row_of(request.id) else { return };
        // A sample that was slow by chance must be able to become quick again.
        let was_slow = || table.as_ref().is_some_and(|table| (0..columns(work)).any(|column| table.has(row, column)));
        if is_quick && total < RECORDED_FROM && !was_slow() {
            return;
        }
        let size = work.size_of(row);
        for (number, &(time, work_hint)) in record.stages().iter().enumerate() {
            // An idle stage has no column. It is predicted from the average over all samples.
            let Some(column) = column(number, work_hint, self.stages.len()) else { continue };
            if let Some(table) = table {
                table.record_time(row, column, time);
            }
            // A model of the slow samples alone would call all others slow, too.
            if !is_quick {
                self.stages[number].learn(work_hint, size, time);
            }
        }
    }

    /// Whether the average sample is quick.
    fn is_quick(&self) -> bool {
        let usual = self.sample.get();
        !usual.is_zero() && usual < QUICK
    }

    /// Whether sizes would help to predict unseen samples.
    pub fn wants_sizes(&self, work: &dyn Workload) -> bool {
        matches!(self.table.get(), Some(Some(_))) && work.samples() <= MAX_SIZES && !work.has_sizes()
    }

    /// The predicted cost of a sample with its draws. `loading` is the work of loading it.
    pub fn predict(&self, work: &dyn Workload, request: SampleRequest, loading: WorkHint) -> Duration {
        self.sum(work, request, |number| if number == 0 { loading } else { work.work_hint(number - 1, request) })
    }

    /// The sum over the stages of a sample, each with its work.
    fn sum(&self, work: &dyn Workload, request: SampleRequest, work_hint: impl Fn(usize) -> WorkHint) -> Duration {
        let row = work.row_of(request.id);
        // The models know only the time in which samples were not quick.
        let size = row.filter(|_| !self.is_quick()).map_or(Size::default(), |row| work.size_of(row));
        let recorded = self.table.get().and_then(Option::as_ref).zip(row);
        let of_stage = |(number, stage): (usize, &Stage)| {
            let work_hint = work_hint(number);
            let column = column(number, work_hint, self.stages.len());
            let known = recorded.zip(column).and_then(|((table, row), column)| table.of(row, column));
            known.unwrap_or_else(|| stage.unseen(work_hint, size))
        };
        self.stages.iter().enumerate().map(of_stage).sum()
    }

    /// Starts to record the cost of each sample of an epoch. Only the first requested epoch counts.
    pub fn watch(&self, work: &dyn Workload, epoch: Epoch) {
        if let Some(table) = Table::for_samples(work.samples(), 1) {
            self.watched.get_or_init(|| (epoch, table));
        }
    }

    /// Whether the cost of each sample of an epoch is recorded.
    pub fn is_watched(&self) -> bool {
        self.watched.get().is_some()
    }

    /// The recorded costs in source order. `None` for samples that were not prepared.
    pub fn watched(&self, work: &dyn Workload) -> Vec<Option<Duration>> {
        let of = |row| self.watched.get().and_then(|(_, table)| table.of(row, 0));
        (0..work.samples()).map(of).collect()
    }

    /// Whether samples were recorded individually since the last call.
    pub fn has_news(&self) -> bool {
        let recorded = self.samples.load(Ordering::Relaxed);
        // Relaxed: only the number itself is compared, and no other data depends on it.
        matches!(self.table.get(), Some(Some(_))) && self.last_news.swap(recorded, Ordering::Relaxed) != recorded
    }

    /// The spread of costs. It may lag behind by a few samples.
    pub fn spread(&self) -> Spread {
        let mut known = self.spread.lock();
        // Read under the lock, so that it is never below the number that another thread has stored.
        let samples = self.samples.load(Ordering::Relaxed);
        match *known {
            // Recomputed after a quarter more samples at first, then every 64: the histogram has 512 buckets to sum.
            Some((spread, of)) if samples.saturating_sub(of) < SPREAD_EVERY.min(of / 4 + 1) => spread,
            _ => {
                let spread =
                    Spread { mean: self.sample.get(), slowest: self.totals.slowest_without_outliers(OUTLIER_SHARE) };
                *known = Some((spread, samples));
                spread
            }
        }
    }
}

/// Number of columns: one per stage, and a second one per stage if ops may search.
fn columns(work: &dyn Workload) -> usize {
    if work.may_search() { 2 * work.stages() } else { work.stages() }
}

/// The column of a stage. `None` for an idle stage. `Search` uses the second half of the columns. That half exists, because only a
/// workload that `may_search` gives this hint.
fn column(number: usize, work_hint: WorkHint, stages: usize) -> Option<usize> {
    match work_hint {
        WorkHint::Idle => None,
        WorkHint::Usual => Some(number),
        WorkHint::Search => Some(stages + number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::open;
    use feedline_order::Occurrence;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn predictions_are_compared_for_all_slow_samples_and_for_some_fast_ones() {
        let plan = open("batch_size = 1\n[source]\nkind = \"synthetic\"\nn = 10\nshape = [1]\n").unwrap();
        let book = |costs: &Costs, record: &mut CostRecord, ordinal: u64, time: Duration| {
            record.clear();
            record.add(time, WorkHint::Usual);
            let id = plan.source().id_at(feedline_order::Ordinal(ordinal));
            let request = SampleRequest { id, epoch: Epoch(0), occurrence: Occurrence(0) };
            let predicted = costs.record(&*plan, request, record);
            costs.flush(record);
            predicted
        };
        let (slow, mut record) = (Costs::new(&*plan), CostRecord::default());
        assert_eq!(book(&slow, &mut record, 0, 10 * MS), None, "nothing was known");
        assert_eq!(book(&slow, &mut record, 1, 30 * MS), Some(10 * MS), "what the others took");
        let again = book(&slow, &mut record, 1, 30 * MS).unwrap();
        assert!(again.abs_diff(30 * MS) < MS, "what it took itself, not {again:?}");
        let (quick, mut record) = (Costs::new(&*plan), CostRecord::default());
        let compared =
            (0..COMPARED_EVERY * 10).filter_map(|number| book(&quick, &mut record, number % 10, MS / 100)).count();
        assert_eq!(compared, 9, "but for the first, of which nothing was known");
    }
    #[test]
    fn a_hiccup_among_quick_samples_is_forgotten_and_says_nothing_of_the_others() {
        let plan = open("batch_size = 1\n[source]\nkind = \"synthetic\"\nn = 10\nshape = [1]\n").unwrap();
        let (costs, mut record) = (Costs::new(&*plan), CostRecord::default());
        let request = |ordinal| {
            let id = plan.source().id_at(feedline_order::Ordinal(ordinal));
            SampleRequest { id, epoch: Epoch(0), occurrence: Occurrence(0) }
        };
        let mut book = |ordinal: u64, time: Duration| {
            record.clear();
            record.add(time, WorkHint::Usual);
            costs.record(&*plan, request(ordinal), &mut record);
            costs.flush(&mut record);
        };
        (0..1000).for_each(|number| book(number % 10, MS / 100));
        book(3, 5 * MS);
        let predict = |ordinal| costs.predict(&*plan, request(ordinal), WorkHint::Usual);
        assert!(predict(3) > 2 * MS, "it was slow once");
        assert!(predict(4) < MS / 10);
        (0..20).for_each(|_| book(3, MS / 100));
        assert!(predict(3) < MS / 10, "{:?}", predict(3));
    }
}
