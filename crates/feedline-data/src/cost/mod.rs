//! What samples cost: measured while they are prepared, predicted before their data is touched.
//!
//! In: times of the stages of samples; a *stage* is the loading of a sample, or one op. Out: predictions for any sample of
//! any epoch. A prediction adds up stages, each with the effort that its draw means: what this stage took for this sample the
//! last times, else what it takes for samples of its size (stored bytes or what headers say, whichever tells more), else
//! on average.
//!
//! `times.rs` is what samples need of all resources together, and which of these bounds a job.
//!
//! Always true: costs decide when work is done, never what is delivered.

mod file;
mod fit;
mod histogram;
mod mean;
mod stage;
mod table;
mod times;
mod workload;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

pub use file::CostFile;
pub use fit::Fit;
use histogram::Histogram;
use mean::Mean;
pub use stage::Size;
use stage::Stage;
use table::Table;
pub use times::{Resource, Times};
pub use workload::Workload;

use crate::op::WorkHint;
use feedline_order::Epoch;
use feedline_order::SampleRequest;

/// Samples that together make up less of the work are not what makes a stream slow: they are hiccups.
const HICCUPS: f64 = 0.1;
/// Samples that take less are not worth a note each.
const NOTED: Duration = Duration::from_micros(200);
/// Of quick samples one in so many is compared with its prediction: a prediction takes some of what they take.
const COMPARED_EVERY: u64 = 16;
/// Samples after which the spread of costs is computed anew; sooner at the beginning.
const SPREAD_EVERY: u64 = 64;
/// Of more samples the sizes are not looked up, because that opens each file.
const MOST_SIZES: u64 = 200_000;

/// The costs of a plan's samples.
#[derive(Debug)]
pub struct Costs {
    /// Loading, then each op.
    stages: Vec<Stage>,
    sample: Mean,
    totals: Histogram,
    samples: AtomicU64,
    /// Samples when [`Costs::has_news`] was asked last.
    told: AtomicU64,
    /// What each stage took for each sample, effort by effort, once there are samples worth it.
    table: OnceLock<Option<Table>>,
    /// What was known of all together after so many samples.
    spread: Mutex<Option<(Spread, u64)>>,
    /// What each sample of one epoch took in all, if somebody wants to know.
    watched: OnceLock<(Epoch, Table)>,
}

/// What one sample took, stage by stage.
#[derive(Debug, Default)]
pub struct CostRecord {
    stages: Vec<(Duration, WorkHint)>,
}

impl CostRecord {
    /// Begins anew.
    pub fn clear(&mut self) {
        self.stages.clear();
    }

    /// Adds the next stage: its time, and what it had to do.
    pub fn add(&mut self, time: Duration, work_hint: WorkHint) {
        self.stages.push((time, work_hint));
    }

    /// What a stage had to do.
    fn work_hint(&self, number: usize) -> WorkHint {
        self.stages.get(number).map_or(WorkHint::Idle, |&(_, work_hint)| work_hint)
    }

    /// All stages together.
    pub fn total(&self) -> Duration {
        self.stages.iter().map(|&(time, _)| time).sum()
    }
}

/// What is known of all samples together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Of the samples of late.
    pub mean: Duration,
    /// Of the slowest samples, but for a few hiccups.
    pub slowest: Duration,
}

impl Costs {
    /// Nothing is known yet.
    pub fn new(work: &dyn Workload) -> Self {
        Self {
            stages: (0..work.stages()).map(|_| Stage::default()).collect(),
            sample: Mean::default(),
            totals: Histogram::default(),
            samples: AtomicU64::new(0),
            told: AtomicU64::new(0),
            table: OnceLock::new(),
            spread: Mutex::default(),
            watched: OnceLock::new(),
        }
    }

    /// Books what a sample took. Gives what it was expected to take, where that is compared: of every sample, or of one in a few
    /// where they are quick.
    pub fn book(&self, work: &dyn Workload, wanted: SampleRequest, record: &CostRecord) -> Option<Duration> {
        let (total, usual) = (record.total(), self.sample.get());
        let number = self.samples.fetch_add(1, Ordering::Relaxed);
        let is_compared = !usual.is_zero() && (usual >= NOTED || number.is_multiple_of(COMPARED_EVERY));
        let predicted = is_compared.then(|| self.sum(work, wanted, |number| record.work_hint(number)));
        self.learn(work, wanted, record, total);
        predicted
    }

    fn learn(&self, work: &dyn Workload, wanted: SampleRequest, record: &CostRecord, total: Duration) {
        self.sample.add(total);
        self.totals.add(total);
        for (stage, &(time, work_hint)) in self.stages.iter().zip(&record.stages) {
            stage.mean(work_hint).add(time);
        }
        if let Some((epoch, table)) = self.watched.get()
            && *epoch == wanted.epoch
            && let Some(row) = work.row_of(wanted.id)
        {
            table.note(row, 0, total);
        }
        if self.table.get().is_none() && total < NOTED {
            return;
        }
        let table = self.table.get_or_init(|| Table::for_samples(work.samples(), columns(work)));
        let Some(row) = work.row_of(wanted.id) else { return };
        let size = work.size_of(row);
        for (number, &(time, work_hint)) in record.stages.iter().enumerate() {
            let Some(column) = column(number, work_hint, self.stages.len()) else { continue };
            if let Some(table) = table {
                table.note(row, column, time);
            }
            self.stages[number].learn(work_hint, size, time);
        }
    }

    /// Whether sizes would help to predict what samples take that were not seen yet.
    pub fn wants_sizes(&self, work: &dyn Workload) -> bool {
        matches!(self.table.get(), Some(Some(_))) && work.samples() <= MOST_SIZES && !work.has_sizes()
    }

    /// What a sample will take, its draws considered, where `loading` says what there is to do until it is loaded.
    pub fn predict(&self, work: &dyn Workload, wanted: SampleRequest, loading: WorkHint) -> Duration {
        self.sum(work, wanted, |number| if number == 0 { loading } else { work.work_hint(number - 1, wanted) })
    }

    /// What all stages of a sample will take, each with its effort.
    fn sum(&self, work: &dyn Workload, wanted: SampleRequest, work_hint: impl Fn(usize) -> WorkHint) -> Duration {
        let row = work.row_of(wanted.id);
        let size = row.map_or(Size::default(), |row| work.size_of(row));
        let noted = self.table.get().and_then(Option::as_ref).zip(row);
        let of_stage = |(number, stage): (usize, &Stage)| {
            let work_hint = work_hint(number);
            let column = column(number, work_hint, self.stages.len());
            let known = noted.zip(column).and_then(|((table, row), column)| table.of(row, column));
            known.unwrap_or_else(|| stage.unseen(work_hint, size))
        };
        self.stages.iter().enumerate().map(of_stage).sum()
    }

    /// Notes what each sample of an epoch takes, from now on; the first epoch that is asked for counts.
    pub fn watch(&self, work: &dyn Workload, epoch: Epoch) {
        if let Some(table) = Table::for_samples(work.samples(), 1) {
            self.watched.get_or_init(|| (epoch, table));
        }
    }

    /// What the samples of the epoch took, in the source's order, as far as they were prepared.
    pub fn watched(&self, work: &dyn Workload) -> Vec<Option<Duration>> {
        let of = |row| self.watched.get().and_then(|(_, table)| table.of(row, 0));
        (0..work.samples()).map(of).collect()
    }

    /// Whether something about single samples was booked since this was asked last.
    pub fn has_news(&self) -> bool {
        let booked = self.samples.load(Ordering::Relaxed);
        matches!(self.table.get(), Some(Some(_))) && self.told.swap(booked, Ordering::Relaxed) != booked
    }

    /// What is known of all samples together, but for the last few.
    pub fn spread(&self) -> Spread {
        let samples = self.samples.load(Ordering::Relaxed);
        let mut known = self.spread.lock();
        match *known {
            Some((spread, of)) if samples - of < SPREAD_EVERY.min(of / 4 + 1) => spread,
            _ => {
                let spread = Spread { mean: self.sample.get(), slowest: self.totals.slowest_but(HICCUPS) };
                *known = Some((spread, samples));
                spread
            }
        }
    }
}

/// Columns of the table: one for the work of each stage, one for its search where there may be any.
fn columns(work: &dyn Workload) -> usize {
    if work.may_search() { 2 * work.stages() } else { work.stages() }
}

/// The column of a stage, of which there are `stages`; none for one that is idle.
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
    fn samples_are_compared_with_what_was_known_before_them_all_or_of_quick_ones_some() {
        let plan = open("batch_size = 1\n[source]\nkind = \"synthetic\"\nn = 10\nshape = [1]\n").unwrap();
        let book = |costs: &Costs, ordinal: u64, time: Duration| {
            let mut record = CostRecord::default();
            record.add(time, WorkHint::Usual);
            let id = plan.source().id_at(feedline_order::Ordinal(ordinal));
            costs.book(&*plan, SampleRequest { id, epoch: Epoch(0), occurrence: Occurrence(0) }, &record)
        };
        let slow = Costs::new(&*plan);
        assert_eq!(book(&slow, 0, 10 * MS), None, "nothing was known");
        assert_eq!(book(&slow, 1, 30 * MS), Some(10 * MS), "what the others took");
        let again = book(&slow, 1, 30 * MS).unwrap();
        assert!(again.abs_diff(30 * MS) < MS, "what it took itself, not {again:?}");
        let quick = Costs::new(&*plan);
        let compared = (0..COMPARED_EVERY * 10).filter_map(|number| book(&quick, number % 10, MS / 100)).count();
        assert_eq!(compared, 9, "but for the first, of which nothing was known");
    }
}
