//! Delivers the batches of a job that shares its samples with other jobs.
//!
//! In: segments from a feed. Out: the job's own batches, in the order in which segments arrive.
//!
//! Always true: in an epoch each sample comes once (law 2). The progress does not move past a batch that failed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_data::batch::Batch;
use feedline_data::plan::{OnError, Plan};
use feedline_memory::Mutex;
use feedline_order::Epoch;

use super::cutter::{Cutter, Cutting};
use super::deliverer::{Delivered, Deliverer};
use super::feed::Feed;
use crate::error::Error;
use crate::metrics::{Metrics, Phase, QueueSnapshot, Substitute};
use crate::run::Stuck;
use crate::state::{JobProgress, Received, SharedJobProgress};

/// Cuts a job's batches out of the segments of a feed.
#[derive(Debug)]
pub(super) struct SegmentDeliverer {
    plan: Arc<Plan>,
    metrics: Arc<Metrics>,
    feed: Arc<dyn Feed>,
    progress: Mutex<SegmentDelivererState>,
    /// Held while a consumer waits for a segment, and in `seek`. So two consumers never add a segment each, and a segment that was
    /// leased before a jump is not added after it.
    turn: Mutex<()>,
}

#[derive(Debug)]
struct SegmentDelivererState {
    job_progress: SharedJobProgress,
    cutter: Cutter,
    /// Time that the consumer has waited for the next batch.
    waited: Duration,
    stuck: Option<Stuck>,
    is_closed: bool,
}

impl SegmentDeliverer {
    /// Continues from a job's progress. `production` is the plan of the segments.
    pub(super) fn new(
        plan: &Arc<Plan>,
        production: &Arc<Plan>,
        feed: Arc<dyn Feed>,
        received: &Received,
        metrics: &Arc<Metrics>,
    ) -> Self {
        let progress = SegmentDelivererState {
            job_progress: received.job_progress().clone(),
            cutter: Cutter::new(plan, Arc::clone(production)),
            waited: Duration::ZERO,
            stuck: None,
            is_closed: false,
        };
        let (plan, metrics) = (Arc::clone(plan), Arc::clone(metrics));
        Self { plan, metrics, feed, progress: Mutex::new(progress), turn: Mutex::default() }
    }

    /// Number of samples in the next batch. 0 at the end of the epoch.
    fn batch_len(&self, job_progress: &JobProgress) -> usize {
        let batch_size = self.plan.settings().batch_size as u64;
        let left = self.plan.segments().samples() - job_progress.received;
        let len = left.min(batch_size);
        if self.plan.settings().drop_last && len < batch_size { 0 } else { len as usize }
    }

    /// Fails if there can be no next batch.
    fn check(&self, progress: &SegmentDelivererState) -> Result<(), Error> {
        match &progress.stuck {
            _ if progress.is_closed => Err(Error::Closed),
            Some(stuck) => Err(stuck.error(&self.plan)),
            None => Ok(()),
        }
    }

    /// Returns an error if the epoch has too many substitutes with these. Otherwise the batch may be delivered.
    fn stuck(&self, job_progress: &JobProgress, substitutes: &[Substitute]) -> Option<Stuck> {
        let replaced = job_progress.substituted + substitutes.len() as u64;
        let (first, last) = substitutes.first().zip(substitutes.last())?;
        if replaced <= self.plan.substitutes_allowed() {
            return None;
        }
        Some(match self.plan.settings().on_error {
            OnError::Raise => Stuck::Failure(Arc::clone(&first.failure)),
            OnError::Substitute { .. } => {
                let (epoch, source) = (job_progress.epoch, Arc::clone(&last.failure));
                Stuck::TooMany { substituted: replaced, epoch, source }
            }
        })
    }
}

impl Deliverer for SegmentDeliverer {
    fn wait_within(&self, timeout: Duration) -> Result<bool, Error> {
        // Lock order: `turn`, `progress`, `job_progress`.
        let _turn = self.turn.lock();
        let deadline = Instant::now() + timeout;
        loop {
            let mut progress = self.progress.lock();
            self.check(&progress)?;
            let len = self.batch_len(&progress.job_progress.lock());
            if progress.cutter.has(len)? {
                return Ok(true);
            }
            // Waiting must not block `take`, `queue` and `close`, which need this lock.
            drop(progress);
            let began = Instant::now();
            let next = self.feed.next_within(deadline.saturating_duration_since(began));
            let mut progress = self.progress.lock();
            progress.waited += began.elapsed();
            let Some(segment) = next? else { return Ok(false) };
            let job_progress = progress.job_progress.lock();
            // A segment of an epoch that ended early is dropped, which ends its lease.
            if segment.epoch == job_progress.epoch {
                // Only the segment in which the job stopped is resumed. All others start at their first sample.
                let under_way = job_progress.under_way(self.plan.segments());
                let received = under_way
                    .filter(|(segment_round, _)| *segment_round == segment.segment_round)
                    .map_or(0, |(_, n)| n);
                drop(job_progress);
                progress.cutter.add(segment, received);
            }
        }
    }

    fn take(&self) -> Result<Option<Delivered>, Error> {
        let mut progress = self.progress.lock();
        self.check(&progress)?;
        let shared = progress.job_progress.clone();
        let mut job_progress = shared.lock();
        let len = self.batch_len(&job_progress);
        if !progress.cutter.has(len)? {
            return Ok(None);
        }
        let number = job_progress.received / self.plan.settings().batch_size as u64;
        let Cutting { fields, begun, bad } = progress.cutter.cut(len)?;
        let batch = Batch { epoch: job_progress.epoch, number, len, fields };
        let substitutes: Vec<Substitute> = bad.into_iter().map(|bad| bad.substitute).collect();
        if let Some(stuck) = self.stuck(&job_progress, &substitutes) {
            let error = stuck.error(&self.plan);
            // The samples are cut off, but the progress stays before them. The deliverer of the next iteration gets them again.
            progress.stuck = Some(stuck);
            return Err(error);
        }
        for segment_round in begun {
            job_progress.begin(segment_round);
        }
        job_progress.substituted += substitutes.len() as u64;
        job_progress.received += len as u64;
        if self.batch_len(&job_progress) == 0 {
            let next = Epoch(job_progress.epoch.0 + 1);
            job_progress.jump(next);
            // With `drop_last`, the samples after the last whole batch are dropped.
            progress.cutter.clear();
        }
        drop(job_progress);
        // The wait for the first batch of an epoch is start-up. The cause of other waits is known only to the node, which counts
        // it. Here they count as preparation.
        let cause = if number == 0 { Phase::Start } else { Phase::Prepare };
        self.metrics.stalls.add(cause, std::mem::take(&mut progress.waited));
        self.metrics.add_substitutes(&substitutes);
        self.metrics.add_batch(&batch);
        Ok(Some(Delivered { batch, after: Received::JobProgress(shared), arrived: None }))
    }

    fn seek(&self, received: &Received) {
        let _turn = self.turn.lock();
        let mut progress = self.progress.lock();
        (progress.job_progress, progress.stuck) = (received.job_progress().clone(), None);
        progress.cutter.clear();
        // An error means that the node is gone. The next wait notices that too, and reports it.
        self.feed.change(&progress.job_progress.lock()).unwrap_or_default();
    }

    fn queue(&self) -> QueueSnapshot {
        let ready_batches = self.progress.lock().cutter.samples() / self.plan.settings().batch_size;
        QueueSnapshot { ready_batches, open_batches: ready_batches, ..QueueSnapshot::default() }
    }

    fn workers(&self) -> usize {
        0
    }

    /// It stays open between iterations: other jobs rely on its pace, and it holds at most one segment.
    fn ends_with_iteration(&self) -> bool {
        false
    }

    fn close(&self) {
        let mut progress = self.progress.lock();
        progress.is_closed = true;
        progress.cutter.clear();
    }
}
