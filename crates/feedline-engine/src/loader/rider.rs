//! Batches of a job that shares its samples with others.
//!
//! In: segments from a feed. Out: the job's own batches, cut out of them in the order in which they come.
//!
//! Always true: in an epoch each sample comes once (law 2). A batch that could not be delivered stays the next one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_data::batch::Batch;
use feedline_data::plan::{OnError, Plan};
use feedline_order::Epoch;
use parking_lot::Mutex;

use super::cutter::{Cutter, Cutting};
use super::deliverer::{Delivered, Deliverer};
use super::feed::Feed;
use crate::error::Error;
use crate::metrics::{Metrics, Phase, QueueSnapshot, Substitute};
use crate::run::Stuck;
use crate::state::{Received, Ride, SharedRide};

/// Cuts a job's batches out of the segments of a feed.
#[derive(Debug)]
pub(super) struct Rider {
    plan: Arc<Plan>,
    metrics: Arc<Metrics>,
    feed: Arc<dyn Feed>,
    progress: Mutex<Progress>,
    /// Held while somebody waits for a segment, and while the place in the stream changes.
    turn: Mutex<()>,
}

#[derive(Debug)]
struct Progress {
    ride: SharedRide,
    cutter: Cutter,
    /// How long the consumer has waited for the next batch.
    waited: Duration,
    stuck: Option<Stuck>,
    is_closed: bool,
}

impl Rider {
    /// Goes on from a place; `production` is the plan that segments are made by.
    pub(super) fn new(
        plan: &Arc<Plan>,
        production: &Arc<Plan>,
        feed: Arc<dyn Feed>,
        received: &Received,
        metrics: &Arc<Metrics>,
    ) -> Self {
        let progress = Progress {
            ride: received.ride().clone(),
            cutter: Cutter::new(plan, Arc::clone(production)),
            waited: Duration::ZERO,
            stuck: None,
            is_closed: false,
        };
        let (plan, metrics) = (Arc::clone(plan), Arc::clone(metrics));
        Self { plan, metrics, feed, progress: Mutex::new(progress), turn: Mutex::default() }
    }

    /// Samples of the next batch; none at the end of the epoch.
    fn batch_len(&self, ride: &Ride) -> usize {
        let batch_size = self.plan.settings().batch_size as u64;
        let left = self.plan.segments().samples() - ride.received;
        let len = left.min(batch_size);
        if self.plan.settings().drop_last && len < batch_size { 0 } else { len as usize }
    }

    /// An error if the next batch cannot be had any more.
    fn check(&self, progress: &Progress) -> Result<(), Error> {
        match &progress.stuck {
            _ if progress.is_closed => Err(Error::Closed),
            Some(stuck) => Err(stuck.error(&self.plan)),
            None => Ok(()),
        }
    }

    /// Why a batch with these substitutes is not delivered, if it is not.
    fn stuck(&self, ride: &Ride, substitutes: &[Substitute]) -> Option<Stuck> {
        let replaced = ride.substituted + substitutes.len() as u64;
        let first = substitutes.first().filter(|_| replaced > self.plan.substitutes_allowed())?;
        let source = Arc::clone(&first.failure);
        Some(match self.plan.settings().on_error {
            OnError::Raise => Stuck::Failure(source),
            OnError::Substitute { .. } => Stuck::TooMany { replaced, epoch: ride.epoch, source },
        })
    }
}

impl Deliverer for Rider {
    fn wait_within(&self, timeout: Duration) -> Result<bool, Error> {
        let _turn = self.turn.lock();
        let deadline = Instant::now() + timeout;
        loop {
            let mut progress = self.progress.lock();
            self.check(&progress)?;
            let len = self.batch_len(&progress.ride.lock());
            if progress.cutter.has(len)? {
                return Ok(true);
            }
            drop(progress);
            let began = Instant::now();
            let next = self.feed.next_within(deadline.saturating_duration_since(began));
            let mut progress = self.progress.lock();
            progress.waited += began.elapsed();
            let Some(segment) = next? else { return Ok(false) };
            let ride = progress.ride.lock();
            // What is left of an epoch that was ended early is given back.
            if segment.epoch == ride.epoch {
                let under_way = ride.under_way(self.plan.segments());
                let received = under_way.filter(|(portion, _)| *portion == segment.portion).map_or(0, |(_, n)| n);
                drop(ride);
                progress.cutter.add(segment, received);
            }
        }
    }

    fn take(&self) -> Result<Option<Delivered>, Error> {
        let mut progress = self.progress.lock();
        self.check(&progress)?;
        let shared = progress.ride.clone();
        let mut ride = shared.lock();
        let len = self.batch_len(&ride);
        if !progress.cutter.has(len)? {
            return Ok(None);
        }
        let number = ride.received / self.plan.settings().batch_size as u64;
        let Cutting { fields, begun, bad } = progress.cutter.cut(len)?;
        let batch = Batch { epoch: ride.epoch, number, len, fields };
        let substitutes: Vec<Substitute> = bad.into_iter().map(|bad| bad.substitute).collect();
        if let Some(stuck) = self.stuck(&ride, &substitutes) {
            let error = stuck.error(&self.plan);
            progress.stuck = Some(stuck);
            return Err(error);
        }
        for portion in begun {
            ride.begin(portion);
        }
        ride.substituted += substitutes.len() as u64;
        ride.received += len as u64;
        if self.batch_len(&ride) == 0 {
            let next = Epoch(ride.epoch.0 + 1);
            ride.jump(next);
            // What fills no batch is dropped.
            progress.cutter.clear();
        }
        drop(ride);
        let cause = if number == 0 { Phase::Start } else { Phase::Prepare };
        self.metrics.stalls.add(cause, std::mem::take(&mut progress.waited));
        self.metrics.add_substitutes(&substitutes);
        self.metrics.add_batch(&batch);
        Ok(Some(Delivered { batch, after: Received::Ride(shared), arrived: None }))
    }

    fn seek(&self, received: &Received) {
        let _turn = self.turn.lock();
        let mut progress = self.progress.lock();
        (progress.ride, progress.stuck) = (received.ride().clone(), None);
        progress.cutter.clear();
        // A node that is gone is found out by the next wait.
        self.feed.change(&progress.ride.lock()).unwrap_or_default();
    }

    fn queue(&self) -> QueueSnapshot {
        let ready_batches = self.progress.lock().cutter.samples() / self.plan.settings().batch_size;
        QueueSnapshot { ready_batches, open_batches: ready_batches, ..QueueSnapshot::default() }
    }

    fn workers(&self) -> usize {
        0
    }

    /// It stays where it is: other jobs count on its pace, and it holds one segment at most.
    fn ends_with_iteration(&self) -> bool {
        false
    }

    fn close(&self) {
        let mut progress = self.progress.lock();
        progress.is_closed = true;
        progress.cutter.clear();
    }
}
