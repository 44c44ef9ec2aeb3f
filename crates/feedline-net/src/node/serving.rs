//! What one job receives from the node: segments of a carousel, or the batches of a rank's share.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use feedline_data::batch::{Batch, FieldData, Unslotted};
use feedline_data::failure::chain;
use feedline_data::plan::Plan;
use feedline_engine::carousel::{BadSlot, Carousel, JobId, Leased, Provenance, SegmentContent};
use feedline_engine::machine::CoreWeight;
use feedline_engine::metrics::Phase;
use feedline_engine::partition::RankRun;
use feedline_engine::run::Delivery;
use feedline_engine::state::State;
use feedline_memory::{Mutex, Slab};
use feedline_order::Epoch;

use super::batches::BATCHES_AHEAD;
use super::message::{BadMessage, BatchMessage, FromNode, Route, SegmentMessage};

/// Delivers to one job.
pub(super) trait Serving: Send + Sync + Debug {
    /// Continues from another place, or says why that is impossible.
    fn change(&self, route: &Route) -> Result<(), String>;

    /// The job returns the item with this number.
    fn give_back(&self, number: u64);

    /// Waits up to `timeout` until there may be an item to take. May return early.
    fn wait(&self, timeout: Duration);

    /// Records the waiting time of the job.
    fn add_stall(&self, _cause: Phase, _waited: Duration) {}

    /// Takes the next item, if it is ready, or says why there will be none.
    fn take(&self) -> Result<Option<Outgoing>, String>;

    /// Ends a wait.
    fn wake(&self) {}

    /// How many items a job requests at once.
    fn requests_in_flight(&self) -> u64 {
        1
    }
}

/// A segment or batch for a job, in shared memory.
pub(super) struct Outgoing {
    pub epoch: Epoch,
    pub samples: u64,
    /// When and how it was produced.
    pub provenance: Provenance,
    pub slab: Arc<Slab>,
    /// Builds the message, given the job's current generation: see `FromJob::Change`.
    pub message: Box<dyn FnOnce(u64) -> FromNode>,
}

/// A job on a carousel.
#[derive(Debug)]
pub(super) struct CarouselServing {
    carousel: Arc<Carousel>,
    job: JobId,
    /// The number of the last seen change of the carousel.
    seen: AtomicU64,
}

impl CarouselServing {
    /// Adds a job to a carousel, or says why that is impossible.
    pub(super) fn join(carousel: Arc<Carousel>, route: &Route, weight: CoreWeight) -> Result<Self, String> {
        let job_progress = job_progress_of(&carousel, route)?;
        let job = carousel.join(&job_progress, weight).map_err(|error| error.to_string())?;
        Ok(Self { carousel, job, seen: AtomicU64::new(0) })
    }
}

fn job_progress_of(carousel: &Carousel, route: &Route) -> Result<feedline_engine::state::JobProgress, String> {
    let Route::JobProgress(job_progress) = route else {
        return Err("this job shares its samples with other jobs and has no rank".to_owned());
    };
    job_progress.to_job_progress(carousel.plan(), carousel.segments()).map_err(|error| error.to_string())
}

impl Serving for CarouselServing {
    fn change(&self, route: &Route) -> Result<(), String> {
        self.carousel.change(self.job, &job_progress_of(&self.carousel, route)?);
        Ok(())
    }

    fn give_back(&self, number: u64) {
        self.carousel.give_back(self.job, number);
    }

    fn wait(&self, timeout: Duration) {
        let seen = self.carousel.wait_change(self.seen.load(Ordering::Relaxed), timeout);
        self.seen.store(seen, Ordering::Relaxed);
    }

    fn take(&self) -> Result<Option<Outgoing>, String> {
        let leased = self.carousel.lease_within(self.job, Duration::ZERO).map_err(|error| chain(&*error))?;
        let Some(Leased {
            number,
            epoch,
            segment_round,
            skipped,
            can_be_kept,
            content: SegmentContent { slab, bad, provenance },
        }) = leased
        else {
            return Ok(None);
        };
        let positions = self.carousel.segments().positions(segment_round.segment);
        let bytes = slab.layout().total_bytes() as u64;
        let bad = bad.iter().map(BadMessage::from).collect();
        // A segment that was produced for a resumed job may lack the samples at its start that the job had received before.
        let samples = positions.end - positions.start - skipped;
        let message = Box::new(move |generation| {
            FromNode::Segment(SegmentMessage {
                generation,
                number,
                epoch,
                segment_round,
                skipped,
                can_be_kept,
                bytes,
                bad,
            })
        });
        Ok(Some(Outgoing { epoch, samples, provenance, slab, message }))
    }

    fn wake(&self) {
        self.carousel.wake();
    }

    fn add_stall(&self, cause: Phase, waited: Duration) {
        self.carousel.add_stall(cause, waited);
    }
}

impl Drop for CarouselServing {
    fn drop(&mut self) {
        self.carousel.leave(self.job);
    }
}

/// A rank of a job.
#[derive(Debug)]
pub(super) struct RankServing {
    plan: Arc<Plan>,
    share: RankRun,
    /// The slabs that the job has not returned, by number.
    held: Mutex<HashMap<u64, Arc<Slab>>>,
    /// The number of the next item.
    numbers: AtomicU64,
    began: Instant,
}

impl RankServing {
    /// Serves the share of a rank.
    pub(super) fn new(plan: Arc<Plan>, share: RankRun) -> Self {
        Self { plan, share, held: Mutex::default(), numbers: AtomicU64::new(0), began: Instant::now() }
    }

    /// Whether the job holds as many batches as a rank may.
    fn is_full(&self) -> bool {
        let held = self.held.lock().len();
        held >= self.share.partition.batches_of_rank()
    }
}

/// The place where a rank continues, or why that is impossible.
pub(super) fn cursor_of(plan: &Plan, route: &Route) -> Result<feedline_engine::state::Cursor, String> {
    let Route::Share(state) = route else {
        return Err("this job has a rank and does not share its samples with other jobs".to_owned());
    };
    let state: State = serde_json::from_str(state).map_err(|error| format!("the job's state is damaged: {error}"))?;
    state.to_cursor(plan).map_err(|error| error.to_string())
}

impl Serving for RankServing {
    fn change(&self, route: &Route) -> Result<(), String> {
        self.share.run.seek(cursor_of(&self.plan, route)?);
        Ok(())
    }

    fn give_back(&self, number: u64) {
        self.held.lock().remove(&number);
    }

    fn wait(&self, timeout: Duration) {
        if self.is_full() {
            // A returned slab causes no event, so this polls.
            std::thread::sleep(timeout.min(Duration::from_millis(5)));
        } else if let Err(error) = self.share.run.wait_within(timeout) {
            tracing::debug!(%error, "the run of a rank has ended");
        }
    }

    fn take(&self) -> Result<Option<Outgoing>, String> {
        if self.is_full() {
            return Ok(None);
        }
        let Some((delivery, slab)) = self.share.run.take().map_err(|error| chain(&error))? else { return Ok(None) };
        let Delivery { batch, substitutes, phase, .. } = delivery;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        // Keeps the slab alive until the job returns it.
        self.held.lock().insert(number, Arc::clone(&slab));
        let (epoch, samples, bytes) = (batch.epoch, batch.len as u64, slab.layout().total_bytes() as u64);
        // The slot is unused here: the client of a rank reports substitutes without their place.
        let bad =
            substitutes.into_iter().map(|substitute| BadMessage::from(&BadSlot { slot: 0, substitute })).collect();
        let keys = keys_of(batch);
        let message =
            Box::new(move |generation| FromNode::Batch(BatchMessage { generation, number, samples, bytes, keys, bad }));
        // All waiting counts for `phase`, none for room: a request before the wait began leaves nothing for that part.
        let provenance = Provenance { requested: self.began, phase };
        Ok(Some(Outgoing { epoch, samples, provenance, slab, message }))
    }

    fn requests_in_flight(&self) -> u64 {
        BATCHES_AHEAD
    }
}

/// The names of a batch's samples, if it has them.
fn keys_of(batch: Batch) -> Vec<String> {
    let lists = batch.fields.into_iter().filter_map(|field| match field.data {
        FieldData::List(values) => Some(values),
        _ => None,
    });
    let text = |value| if let Unslotted::Text(text) = value { Some(text) } else { None };
    lists.flatten().filter_map(text).collect()
}
