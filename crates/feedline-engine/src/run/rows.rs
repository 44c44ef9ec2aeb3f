//! Tasks whose samples are only copied.
//!
//! In: a task of a supply that fills many slots at once. Out: a report without single samples. If one sample has to be watched by
//! itself, or something goes wrong, nothing is done here, and the samples are prepared one by one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use feedline_order::EpochSequence;

use super::prepare::{Preparer, TaskReport};
use crate::supply::Task;

impl Preparer {
    /// Fills all slots of a task at once. Returns false if the samples must be prepared one by one.
    pub(super) fn fill_rows(&mut self, task: &mut Task, visits: &EpochSequence, report: &mut TaskReport) -> bool {
        if !self.supply.fills_rows() || self.costs.is_watched() || self.books.is_recording() {
            return false;
        }
        let began = Instant::now();
        // Without a writer the sample is prepared in memory of its own.
        let Some(mut writer) = task.writer.take() else { return false };
        let samples = task.placed_requests(&self.plan, visits);
        let filled = catch_unwind(AssertUnwindSafe(|| self.supply.fill_rows(&samples, task.slots.start, &mut writer)));
        task.writer = Some(writer);
        // A panic is a bug of one sample. One by one, that sample is named.
        let (Ok(()), Some(&(_, first))) = (filled, samples.first()) else { return false };
        let taken = began.elapsed();
        self.books.filled(taken, samples.len());
        if let Some(predicted) = self.costs.record(&*self.plan, first, self.books.record_mut()) {
            self.metrics.costs.add(predicted, self.books.record().total());
        }
        report.read += taken;
        true
    }
}
