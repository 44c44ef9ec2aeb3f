//! The cost of one sample, and the sums of a task that the shared averages do not contain yet.
//!
//! In: the times of the stages of a sample, one after the other. Out: sums over the samples of a task. One thread owns a record.

use std::time::Duration;

use crate::op::WorkHint;

/// The cost of one sample, stage by stage, and the sums over the samples that [`Costs`](super::Costs) does not contain yet.
#[derive(Debug, Default)]
pub struct CostRecord {
    stages: Vec<(Duration, WorkHint)>,
    /// The number of samples so far.
    samples: u64,
    totals: Vec<Duration>,
    /// Sum and number of times by stage and work.
    sums: Vec<[(Duration, u64); WorkHint::ALL.len()]>,
}

impl CostRecord {
    /// Starts a new sample.
    pub fn clear(&mut self) {
        self.stages.clear();
    }

    /// Adds the next stage: its time and its work.
    pub fn add(&mut self, time: Duration, work_hint: WorkHint) {
        self.stages.push((time, work_hint));
    }

    /// The sum over all stages.
    pub fn total(&self) -> Duration {
        self.stages.iter().map(|&(time, _)| time).sum()
    }

    /// The stages of the sample.
    pub(super) fn stages(&self) -> &[(Duration, WorkHint)] {
        &self.stages
    }

    /// The work of a stage.
    pub(super) fn work_hint(&self, number: usize) -> WorkHint {
        self.stages.get(number).map_or(WorkHint::Idle, |&(_, work_hint)| work_hint)
    }

    /// Keeps the sample for the next flush. Returns how many samples came before it.
    pub(super) fn keep(&mut self, total: Duration) -> u64 {
        self.totals.push(total);
        if self.sums.len() < self.stages.len() {
            self.sums.resize(self.stages.len(), Default::default());
        }
        for (sums, &(time, work_hint)) in self.sums.iter_mut().zip(&self.stages) {
            let (sum, count) = &mut sums[work_hint as usize];
            *sum += time;
            *count += 1;
        }
        self.samples += 1;
        self.samples - 1
    }

    /// The kept samples.
    pub(super) fn totals(&self) -> &[Duration] {
        &self.totals
    }

    /// Stage, work, sum and number of the kept times.
    pub(super) fn stage_sums(&self) -> impl Iterator<Item = (usize, WorkHint, Duration, u64)> {
        let of_stage = |(number, sums): (usize, &[(Duration, u64); WorkHint::ALL.len()])| {
            let sums = *sums;
            WorkHint::ALL.into_iter().map(move |hint| (number, hint, sums[hint as usize].0, sums[hint as usize].1))
        };
        self.sums.iter().enumerate().flat_map(of_stage).filter(|&(_, _, _, count)| count > 0)
    }

    /// Forgets the kept samples.
    pub(super) fn forget_kept(&mut self) {
        self.totals.clear();
        self.sums.clear();
    }
}
