//! The progress of one job through the segments of a carousel, and its saved form.
//!
//! In: delivered segments. Out: what is left of the epoch, and a state that continues on any machine, with or without the node (law
//! 4). The order of segments that have not started is not part of the state.

use feedline_data::plan::{OpMarks, Plan};
use feedline_order::{Epoch, Segments};
use serde::{Deserialize, Serialize};

/// A segment in one of its rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SegmentRound {
    /// The number of the segment.
    pub segment: u64,
    /// The round, from 1.
    pub round: u64,
}

/// The progress of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobProgress {
    /// The epoch of this job.
    pub epoch: Epoch,
    /// The segments that started in the epoch, in order. The last may be incomplete.
    pub order: Vec<SegmentRound>,
    /// Number of samples received in the epoch.
    pub received: u64,
    /// The last round of each segment that the job ever started. 0 if none.
    pub rounds: Vec<u64>,
    /// Number of substituted samples in the epoch.
    pub substituted: u64,
}

impl JobProgress {
    /// The progress of a job that has received nothing.
    pub fn new(segments: &Segments) -> Self {
        let rounds = vec![0; segments.count() as usize];
        Self { epoch: Epoch(0), order: Vec::new(), received: 0, rounds, substituted: 0 }
    }

    /// Jumps to the start of an epoch. Rounds that the job has had are not repeated.
    pub fn jump(&mut self, epoch: Epoch) {
        *self =
            Self { epoch, order: Vec::new(), received: 0, rounds: std::mem::take(&mut self.rounds), substituted: 0 };
    }

    /// Records that a segment round started.
    pub fn begin(&mut self, segment_round: SegmentRound) {
        self.order.push(segment_round);
        let round = &mut self.rounds[segment_round.segment as usize];
        *round = (*round).max(segment_round.round);
    }

    /// The incomplete segment, and how many of its samples were received. `None` between two segments.
    pub fn under_way(&self, segments: &Segments) -> Option<(SegmentRound, u64)> {
        let (last, before) = self.order.split_last()?;
        let len = |segment_round: &SegmentRound| {
            let positions = segments.positions(segment_round.segment);
            positions.end - positions.start
        };
        // All segments before the last one are complete.
        let received = self.received - before.iter().map(len).sum::<u64>();
        (received < len(last)).then_some((*last, received))
    }

    /// Segments that have not started in the epoch.
    pub fn needs(&self, segments: &Segments) -> impl Iterator<Item = u64> {
        let begun: std::collections::BTreeSet<u64> =
            self.order.iter().map(|segment_round| segment_round.segment).collect();
        (0..segments.count()).filter(move |segment| !begun.contains(segment))
    }

    /// The saved form of this progress.
    pub fn to_state(&self, plan: &Plan, segments: &Segments) -> JobProgressState {
        JobProgressState {
            feedline: FORMAT,
            shared: plan.segments_state_key().to_string(),
            samples: segments.samples(),
            segment_len: segments.segment_len(),
            ops: OpMarks::of(plan),
            epoch: self.epoch,
            received: self.received,
            substituted: self.substituted,
            order: self.order.clone(),
            rounds: self.rounds.clone(),
        }
    }
}

/// The version of the saved form.
const FORMAT: u32 = 3;

/// A saved progress: plain data, a few numbers per segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of JobProgress and Segments")]
pub struct JobProgressState {
    pub feedline: u32,
    /// The fingerprint that jobs must share to continue from it.
    pub shared: String,
    pub samples: u64,
    pub segment_len: u64,
    pub ops: OpMarks,
    pub epoch: Epoch,
    pub received: u64,
    pub substituted: u64,
    pub order: Vec<SegmentRound>,
    pub rounds: Vec<u64>,
}

/// Why a state cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum JobProgressError {
    #[error(
        "the state has format {found}, but this version reads format {FORMAT}; use the version of Feedline that saved it, or start the epoch again with set_epoch"
    )]
    Format { found: u32 },
    #[error(
        "the state belongs to other data, ops, fields or another library version: {saved} samples then, {now} now; restore them, or start the epoch again with set_epoch"
    )]
    Other { saved: u64, now: u64 },
    #[error("the state was saved with other ops, so an exact resume is not possible: {changes}")]
    Ops { changes: String },
    #[error("the state is damaged: {problem}")]
    Damaged { problem: &'static str },
}

impl JobProgressState {
    /// The progress that this state describes.
    pub fn to_job_progress(&self, plan: &Plan, segments: &Segments) -> Result<JobProgress, JobProgressError> {
        let damaged = |problem| Err(JobProgressError::Damaged { problem });
        if self.feedline != FORMAT {
            return Err(JobProgressError::Format { found: self.feedline });
        }
        if let Some(changes) = self.ops.changes(&OpMarks::of(plan)) {
            return Err(JobProgressError::Ops { changes });
        }
        let is_same =
            self.shared == plan.segments_state_key().to_string() && self.segment_len == segments.segment_len();
        if !is_same || self.samples != segments.samples() {
            return Err(JobProgressError::Other { saved: self.samples, now: segments.samples() });
        }
        if self.rounds.len() as u64 != segments.count() {
            return damaged("it does not have one round for each segment");
        }
        if self.rounds.iter().chain([&self.epoch.0]).any(|count| *count > Epoch::LAST.0) {
            return damaged("its epoch or a round is out of range");
        }
        let mut seen = vec![false; self.rounds.len()];
        let (mut begun, mut finished) = (0, 0);
        for &SegmentRound { segment, round } in &self.order {
            let Some(seen) = seen.get_mut(segment as usize) else {
                return damaged("it names a segment that does not exist");
            };
            if std::mem::replace(seen, true) || round == 0 || round > self.rounds[segment as usize] {
                return damaged("it names a segment twice, or a round that was not received");
            }
            let positions = segments.positions(segment);
            // Samples of all segments before the last one. The last one must have started, so more than these must be received.
            finished = begun;
            begun += positions.end - positions.start;
        }
        if self.received > begun || (!self.order.is_empty() && self.received <= finished) {
            return damaged("the number of received samples does not fit its segments");
        }
        let Self { epoch, received, substituted, .. } = *self;
        Ok(JobProgress { epoch, order: self.order.clone(), received, rounds: self.rounds.clone(), substituted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_data::testing::open;

    fn plan() -> std::sync::Arc<Plan> {
        open("batch_size = 8\nshuffle = true\n[source]\nkind = \"synthetic\"\nn = 100\nshape = [4]\n").unwrap()
    }

    #[test]
    fn law_4_a_saved_way_is_the_same_way_and_knows_what_is_under_way() {
        let plan = plan();
        let segments = plan.segments();
        assert_eq!((segments.segment_len(), segments.count()), (8, 13));
        let mut job_progress = JobProgress::new(segments);
        assert_eq!(job_progress.under_way(segments), None);
        for (segment, round) in [(3, 1), (12, 4), (0, 2)] {
            job_progress.begin(SegmentRound { segment, round });
        }
        // The last segment has four samples.
        job_progress.received = 8 + 4 + 3;
        assert_eq!(job_progress.under_way(segments), Some((SegmentRound { segment: 0, round: 2 }, 3)));
        let back = job_progress.to_state(&plan, segments).to_job_progress(&plan, segments).unwrap();
        assert_eq!(back, job_progress);
        assert_eq!(back.needs(segments).count(), 10);
        job_progress.received = 8 + 4 + 8;
        assert_eq!(job_progress.under_way(segments), None, "it is finished");
        job_progress.jump(Epoch(1));
        assert_eq!((job_progress.needs(segments).count(), job_progress.rounds[12]), (13, 4));
    }

    #[test]
    fn a_damaged_state_is_refused() {
        let plan = plan();
        let segments = plan.segments();
        let mut job_progress = JobProgress::new(segments);
        job_progress.begin(SegmentRound { segment: 3, round: 1 });
        job_progress.received = 5;
        let sound = job_progress.to_state(&plan, segments);
        let check = |change: &dyn Fn(&mut JobProgressState)| {
            let mut state = sound.clone();
            change(&mut state);
            assert!(state.to_job_progress(&plan, segments).is_err(), "{state:?}");
        };
        check(&|state| state.feedline = 99);
        check(&|state| state.samples = 99);
        check(&|state| state.rounds.push(0));
        check(&|state| state.order[0].segment = 99);
        check(&|state| state.order.push(state.order[0]));
        check(&|state| state.order[0].round = 2);
        check(&|state| state.rounds[5] = u64::MAX);
        check(&|state| state.epoch = Epoch(u64::MAX));
        check(&|state| state.received = 9);
        check(&|state| state.received = 0);
        check(&|state| state.shared = "another".to_owned());
    }
}
