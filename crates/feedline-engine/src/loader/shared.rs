//! One stream of batches of a job that shares its samples with others: epochs, iterations, states.
//!
//! In: segments from a feed. Out: batches of one epoch per iteration, as from a [`super::Loader`], in the order in which the
//! carousel gives them. If the feed is lost, the stream goes on from what was received, from a carousel of its own, or ends
//! with an error, as asked.
//!
//! Always true: in an epoch each sample comes once (law 2); the state says what the consumer has received (law 4).

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use feedline_data::batch::Batch;
use feedline_data::memory::Budget;
use feedline_data::plan::{OnError, Plan};
use feedline_order::{Epoch, Segments};

use super::cutter::{Cutter, Cutting};
use super::feed::Feed;
use super::{Iteration, Next};
use crate::error::Error;
use crate::metrics::{Metrics, Phase, QueueSnapshot, Snapshot, Substitute};
use crate::state::{Ride, RideState};

/// Gives a feed that goes on from where a ride stands.
pub type Connect = Box<dyn Fn(&Ride) -> Result<Arc<dyn Feed>, Error> + Send + Sync>;

/// A stream of batches that others get, too.
pub struct SharedLoader {
    plan: Arc<Plan>,
    segments: Segments,
    metrics: Metrics,
    budget: Arc<Budget>,
    connect: Connect,
    fallback: Option<Connect>,
    progress: Mutex<Progress>,
    /// Held while a consumer waits, and while the place in the stream changes.
    turn: Mutex<()>,
}

#[derive(Debug)]
struct Progress {
    feed: Option<Arc<dyn Feed>>,
    ride: Ride,
    cutter: Cutter,
    iteration: u64,
    stage: Stage,
    waited: Duration,
    is_closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No batch of the current epoch has been received in this iteration.
    Fresh,
    /// Some have.
    Under,
    /// All have.
    Ended,
}

impl fmt::Debug for SharedLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLoader").field("progress", &self.progress).finish_non_exhaustive()
    }
}

impl SharedLoader {
    /// A stream of `plan`'s samples from the feed that `connect` gives when the first is asked for; `fallback` gives another if
    /// that is lost.
    pub fn new(plan: Arc<Plan>, connect: Connect, fallback: Option<Connect>) -> Result<Self, Error> {
        let segments = plan.segments();
        let production = plan.production().map_err(|error| Error::Unproducible(Box::new(error)))?;
        let progress = Progress {
            feed: None,
            ride: Ride::new(&segments),
            cutter: Cutter::new(&plan, Arc::new(production)),
            iteration: 0,
            stage: Stage::Fresh,
            waited: Duration::ZERO,
            is_closed: false,
        };
        let (metrics, budget) = (Metrics::new(&plan), Budget::new(0));
        Ok(Self {
            plan,
            segments,
            metrics,
            budget,
            connect,
            fallback,
            progress: Mutex::new(progress),
            turn: Mutex::default(),
        })
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Begins an iteration: the epoch of a loaded state or of `set_epoch`, else the one after the last.
    pub fn begin(&self) -> Result<Iteration, Error> {
        let _turn = self.turn();
        let mut progress = self.lock();
        if progress.is_closed {
            return Err(Error::Closed);
        }
        if progress.stage == Stage::Under {
            let next = Epoch(progress.ride.epoch.0 + 1);
            progress.ride.jump(next);
            progress.change()?;
        }
        progress.stage = Stage::Fresh;
        progress.iteration += 1;
        Ok(Iteration::from_number(progress.iteration))
    }

    /// Waits up to `timeout` until [`SharedLoader::take`] has an answer; says whether it has.
    pub fn wait_within(&self, iteration: Iteration, timeout: Duration) -> Result<bool, Error> {
        let _turn = self.turn();
        let deadline = Instant::now() + timeout;
        loop {
            let mut progress = self.lock();
            progress.check(iteration)?;
            let len = self.batch_len(&progress);
            if progress.stage == Stage::Ended || progress.cutter.has(len)? {
                return Ok(true);
            }
            let (feed, ride) = (progress.feed.clone(), progress.ride.clone());
            drop(progress);
            let began = Instant::now();
            let feed = match feed {
                Some(feed) => feed,
                None => match (self.connect)(&ride) {
                    Ok(feed) => self.connected(feed)?,
                    Err(error) => {
                        self.replace_feed(&mut self.lock(), error)?;
                        continue;
                    }
                },
            };
            let next = feed.next_within(deadline.saturating_duration_since(began));
            let mut progress = self.lock();
            progress.waited += began.elapsed();
            match next {
                Ok(None) => return Ok(false),
                // What is left of an epoch that was ended early is given back.
                Ok(Some(segment)) if segment.epoch != progress.ride.epoch => {}
                Ok(Some(segment)) => {
                    let under_way = progress.ride.under_way(&self.segments);
                    let received = under_way.filter(|(portion, _)| *portion == segment.portion).map_or(0, |(_, n)| n);
                    progress.cutter.add(segment, received);
                }
                Err(error) => self.replace_feed(&mut progress, error)?,
            }
        }
    }

    /// Takes a feed, unless the loader was closed meanwhile.
    fn connected(&self, feed: Arc<dyn Feed>) -> Result<Arc<dyn Feed>, Error> {
        let mut progress = self.lock();
        if progress.is_closed {
            return Err(Error::Closed);
        }
        progress.feed = Some(Arc::clone(&feed));
        Ok(feed)
    }

    /// Goes on with another feed, if that is wanted.
    fn replace_feed(&self, progress: &mut Progress, error: Error) -> Result<(), Error> {
        let Some(fallback) = self.fallback.as_ref().filter(|_| matches!(error, Error::Node { .. })) else {
            return Err(error);
        };
        tracing::warn!(%error, "the node is gone; this job goes on alone");
        progress.cutter.clear();
        progress.feed = Some(fallback(&progress.ride)?);
        Ok(())
    }

    /// Takes the next batch of an iteration, if it is ready.
    pub fn take(&self, iteration: Iteration) -> Result<Next, Error> {
        let _turn = self.turn();
        let mut guard = self.lock();
        let progress = &mut *guard;
        progress.check(iteration)?;
        let len = self.batch_len(progress);
        if progress.stage == Stage::Ended || len == 0 {
            progress.stage = Stage::Ended;
            return Ok(Next::End);
        }
        if !progress.cutter.has(len)? {
            return Ok(Next::NotYet);
        }
        let number = progress.ride.received / self.plan.settings().batch_size as u64;
        let Cutting { fields, begun, bad } = progress.cutter.cut(len)?;
        let batch = Batch { epoch: progress.ride.epoch, number, len, fields };
        let substitutes: Vec<Substitute> = bad.into_iter().map(|bad| bad.substitute).collect();
        let replaced = progress.ride.substituted + substitutes.len() as u64;
        if let Some(first) = substitutes.first()
            && replaced > self.plan.substitutes_allowed()
        {
            let (source, epoch) = (Arc::clone(&first.failure), progress.ride.epoch);
            // It counts as not delivered, so it is read again.
            progress.cutter.clear();
            progress.change()?;
            return Err(match self.plan.settings().on_error {
                OnError::Raise => Error::Sample(source),
                OnError::Skip { .. } => {
                    Error::TooManyFailures { replaced, allowed: self.plan.substitutes_allowed(), epoch, source }
                }
            });
        }
        for portion in begun {
            progress.ride.begin(portion);
        }
        progress.ride.substituted = replaced;
        progress.ride.received += len as u64;
        progress.stage = Stage::Under;
        self.metrics.add_substitutes(&substitutes);
        if self.batch_len(progress) == 0 {
            progress.stage = Stage::Ended;
            let next = Epoch(progress.ride.epoch.0 + 1);
            progress.ride.jump(next);
            // What fills no batch is dropped.
            progress.cutter.clear();
        }
        let cause = if number == 0 { Phase::Start } else { Phase::Prepare };
        self.metrics.stalls.add(cause, std::mem::take(&mut progress.waited));
        self.metrics.add_batch(&batch);
        Ok(Next::Batch(Box::new(batch)))
    }

    /// Samples of the next batch; none at the end of the epoch.
    fn batch_len(&self, progress: &Progress) -> usize {
        let batch_size = self.plan.settings().batch_size as u64;
        let left = self.segments.samples() - progress.ride.received;
        let len = left.min(batch_size);
        if self.plan.settings().drop_last && len < batch_size { 0 } else { len as usize }
    }

    /// An error if an iteration gets no more batches: the loader was closed, or a newer iteration began.
    pub fn check(&self, iteration: Iteration) -> Result<(), Error> {
        self.lock().check(iteration)
    }

    /// The epoch that the next iteration would run.
    pub fn upcoming_epoch(&self) -> Epoch {
        let progress = self.lock();
        Epoch(progress.ride.epoch.0 + u64::from(progress.stage == Stage::Under))
    }

    /// Makes `epoch` the next to run; changes nothing if it is that anyway.
    pub fn set_epoch(&self, epoch: Epoch) -> Result<(), Error> {
        if self.upcoming_epoch() == epoch && !self.lock().is_closed {
            return Ok(());
        }
        self.jump(|ride| ride.jump(epoch))
    }

    /// What the consumer has received.
    pub fn state(&self) -> RideState {
        self.lock().ride.to_state(&self.plan, &self.segments)
    }

    /// Goes on from a state.
    pub fn load_state(&self, state: &RideState) -> Result<(), Error> {
        let loaded = state.to_ride(&self.plan, &self.segments)?;
        self.jump(|ride| *ride = loaded)
    }

    fn jump(&self, change: impl FnOnce(&mut Ride)) -> Result<(), Error> {
        let _turn = self.turn();
        let mut progress = self.lock();
        if progress.is_closed {
            return Err(Error::Closed);
        }
        change(&mut progress.ride);
        progress.stage = Stage::Fresh;
        progress.iteration += 1;
        progress.change()
    }

    /// What this job has received so far, in numbers.
    pub fn snapshot(&self) -> Snapshot {
        let ready_batches = self.lock().cutter.samples() / self.plan.settings().batch_size;
        let queue = QueueSnapshot { ready_batches, open_batches: ready_batches, ..QueueSnapshot::default() };
        Snapshot::new(&self.metrics, 0, queue, self.budget.snapshot())
    }

    /// Leaves the carousel.
    pub fn close(&self) {
        let feed = {
            let mut progress = self.lock();
            progress.is_closed = true;
            progress.cutter.clear();
            progress.feed.take()
        };
        drop(feed);
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    fn check(&self, iteration: Iteration) -> Result<(), Error> {
        if self.is_closed {
            return Err(Error::Closed);
        }
        if self.iteration == iteration.number() { Ok(()) } else { Err(Error::Superseded) }
    }

    /// Tells the feed where the stream goes on.
    fn change(&mut self) -> Result<(), Error> {
        self.cutter.clear();
        match &self.feed {
            // A node that is gone is found out by the next wait.
            Some(feed) => feed.change(&self.ride).or_else(|error| match error {
                Error::Node { .. } => Ok(()),
                error => Err(error),
            }),
            None => Ok(()),
        }
    }
}
