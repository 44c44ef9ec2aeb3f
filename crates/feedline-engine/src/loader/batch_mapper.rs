//! Applies functions to whole batches.
//!
//! In: the batches of another deliverer. Out: the same batches after the functions, in the same order. Threads of its own take batches
//! ahead of the consumer, a few at most, so that functions run while the trainer works.
//!
//! Always true: the place in the stream that comes with a batch is the one after this batch, however many batches were taken ahead.
//! Shared segments record progress where they are read, so there each batch is taken and mapped when the consumer asks for it.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_data::batch::Batch;
use feedline_data::memory::Cancel;
use feedline_memory::{Condvar, Mutex, MutexGuard, Pool};
use feedline_order::{Epoch, Rank};

use super::STREAM_POLL;
use super::deliverer::{Delivered, Deliverer};
use crate::error::Error;
use crate::metrics::QueueSnapshot;
use crate::state::Received;
use crate::threads::Threads;

/// Interval at which a thread looks for a batch while no consumer waits. Waiting in the deliverer would count as a stall.
const IDLE_POLL: Duration = Duration::from_millis(2);

/// How long [`BatchMapper::close`] waits for its threads.
const CLOSE_TIME: Duration = Duration::from_millis(800);

/// A function on whole batches.
pub trait BatchFunction: Send + Sync + Debug {
    /// Maps a batch. The result may depend on nothing but the batch, its place and the seed of the plan (law 1).
    fn apply(&self, batch: Batch, at: BatchPlace, cancel: &Cancel) -> Result<Batch, Box<dyn StdError + Send + Sync>>;

    /// Ends what it has started outside this process.
    fn release(&self);
}

/// Which batch a function gets: the key of its random numbers (ADR 36).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPlace {
    /// The epoch.
    pub epoch: Epoch,
    /// The position of its first slot in the epoch, over all ranks. In shared segments: the samples received before in this epoch.
    pub place: u64,
}

/// The functions of a loader, and what places are computed from.
#[derive(Clone, Debug)]
pub(super) struct BatchFunctions {
    pub functions: Arc<[Arc<dyn BatchFunction>]>,
    pub rank: Rank,
    pub batch_size: u64,
    pub threads: usize,
}

/// A batch that was taken, with its place.
type Taken = Result<(Delivered, BatchPlace), Failure>;

/// A deliverer whose batches go through functions.
#[derive(Debug)]
pub(super) struct BatchMapper {
    shared: Arc<Shared>,
    threads: Threads,
    /// Whether threads take batches ahead of the consumer.
    is_ahead: bool,
}

#[derive(Debug)]
struct Shared {
    inner: Arc<dyn Deliverer>,
    functions: BatchFunctions,
    cancel: Cancel,
    /// Held by the thread that takes the next batch.
    taking: Mutex<()>,
    state: Mutex<MapperState>,
    /// A result is there, there is room for another one, or the mapper was closed.
    changed: Condvar,
}

#[derive(Debug)]
struct MapperState {
    /// The place before the next batch that is taken.
    before: Received,
    results: HashMap<u64, Result<Delivered, Failure>>,
    /// The numbers of the next batch to take and to deliver, since the mapper was opened.
    next_taken: u64,
    next_delivered: u64,
    /// The first batch after the last jump. Results of earlier ones are dropped.
    first_valid: u64,
    /// Set after an error: nothing more is taken before a jump.
    is_halted: bool,
    is_closed: bool,
    /// Consumers that wait for a batch.
    waiting: usize,
    /// Jumps that wait for `taking`. Threads let them go first.
    seeking: usize,
}

/// Why a batch cannot be delivered. It stays at its place until a jump, so that every consumer learns of it.
#[derive(Debug)]
enum Failure {
    /// The inner deliverer failed. It repeats its error; the first one is kept here until it is delivered.
    Inner(Option<Error>),
    /// A function failed.
    Function { number: u64, epoch: Epoch, source: Arc<dyn StdError + Send + Sync> },
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Function { number, epoch, source } => Self::Batch { number, epoch, source },
            Failure::Inner(error) => error.unwrap_or(Self::Closed),
        }
    }
}

impl BatchMapper {
    /// Maps the batches of `inner`, which continues from `received`.
    pub(super) fn start(
        inner: Arc<dyn Deliverer>,
        functions: BatchFunctions,
        received: &Received,
    ) -> Result<Self, Error> {
        let is_ahead = matches!(received, Received::Stream(_));
        let state = MapperState {
            before: received.clone(),
            results: HashMap::new(),
            next_taken: 0,
            next_delivered: 0,
            first_valid: 0,
            is_halted: false,
            is_closed: false,
            waiting: 0,
            seeking: 0,
        };
        let shared = Arc::new(Shared {
            inner,
            functions,
            cancel: Cancel::default(),
            taking: Mutex::default(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let mapper = Self { shared, threads: Threads::new(), is_ahead };
        for number in 0..if is_ahead { mapper.shared.functions.threads } else { 0 } {
            let shared = Arc::clone(&mapper.shared);
            let started = mapper.threads.start(format!("feedline-batch-{number}"), move || shared.work());
            started.map_err(Error::Thread)?;
        }
        Ok(mapper)
    }
}

impl Shared {
    fn work(&self) {
        while let Some((number, taken)) = self.take_next() {
            let result = taken.and_then(|(delivered, at)| self.mapped(delivered, at));
            let mut state = self.state.lock();
            if number >= state.first_valid {
                state.is_halted |= result.is_err();
                state.results.insert(number, result);
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Takes the next batch of the inner deliverer, with its number. `None` once the mapper was closed.
    fn take_next(&self) -> Option<(u64, Taken)> {
        loop {
            let is_waited_for = self.wait_for_room()?;
            let taking = self.taking.lock();
            // Another thread may have taken the room, or a jump may wait.
            if !self.has_room(&self.state.lock()) {
                continue;
            }
            let ready = if is_waited_for { self.inner.wait_within(STREAM_POLL) } else { Ok(true) };
            let taken = ready.and_then(|is_ready| if is_ready { self.inner.take() } else { Ok(None) });
            let mut state = self.state.lock();
            let taken = match taken {
                Ok(None) => {
                    // Not under `taking`, for which a jump may wait.
                    drop(taking);
                    if !is_waited_for {
                        self.changed.wait_for(&mut state, IDLE_POLL);
                    }
                    continue;
                }
                Ok(Some(delivered)) => Ok(self.placed(&mut state, delivered)),
                Err(error) => {
                    state.is_halted = true;
                    Err(Failure::Inner(Some(error)))
                }
            };
            let number = state.next_taken;
            state.next_taken += 1;
            return Some((number, taken));
        }
    }

    /// Waits until another batch may be taken. Returns whether a consumer waits for it. `None` once the mapper was closed.
    fn wait_for_room(&self) -> Option<bool> {
        let mut state = self.state.lock();
        while !state.is_closed {
            if self.has_room(&state) {
                return Some(state.waiting > 0);
            }
            self.changed.wait_for(&mut state, STREAM_POLL);
        }
        None
    }

    fn has_room(&self, state: &MapperState) -> bool {
        // As many finished batches as threads, and one under way in each.
        let limit = 2 * self.functions.threads as u64;
        let has_room = state.next_taken - state.next_delivered < limit;
        has_room && !state.is_halted && !state.is_closed && state.seeking == 0
    }

    /// Finds the place of a batch that was just taken.
    fn placed(&self, state: &mut MapperState, delivered: Delivered) -> (Delivered, BatchPlace) {
        let BatchFunctions { rank, batch_size, .. } = self.functions;
        let number = delivered.batch.number;
        let place = match &state.before {
            Received::Stream(before) => {
                before.offset + number * batch_size * u64::from(rank.world) + u64::from(rank.rank)
            }
            Received::JobProgress(_) => number * batch_size,
        };
        let at = BatchPlace { epoch: delivered.batch.epoch, place };
        state.before = delivered.after.clone();
        (delivered, at)
    }

    fn mapped(&self, delivered: Delivered, at: BatchPlace) -> Result<Delivered, Failure> {
        let Delivered { mut batch, after, arrived } = delivered;
        let (epoch, number) = (batch.epoch, batch.number);
        for function in &*self.functions.functions {
            batch = function.apply(batch, at, &self.cancel).map_err(|source| Failure::Function {
                number,
                epoch,
                source: Arc::from(source),
            })?;
        }
        Ok(Delivered { batch, after, arrived })
    }

    /// Takes and maps the next batch when the consumer asks for it. If a function fails, the progress is that before the batch.
    fn take_now(&self) -> Result<Option<Delivered>, Error> {
        let received = self.state.lock().before.clone();
        let progress = received.job_progress().lock().clone();
        let Some(delivered) = self.inner.take()? else { return Ok(None) };
        let (delivered, at) = self.placed(&mut self.state.lock(), delivered);
        let mapped = self.mapped(delivered, at);
        if mapped.is_err() {
            *received.job_progress().lock() = progress;
            self.inner.seek(&received);
            self.jump(self.state.lock(), &received);
        }
        mapped.map(Some).map_err(Error::from)
    }

    fn wait_for_result(&self, timeout: Duration) -> Result<bool, Error> {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return Err(Error::Closed);
            }
            if state.results.contains_key(&state.next_delivered) {
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            state.waiting += 1;
            self.changed.notify_all();
            self.changed.wait_for(&mut state, left);
            state.waiting -= 1;
        }
    }

    fn jump(&self, mut state: MutexGuard<'_, MapperState>, received: &Received) {
        state.before = received.clone();
        state.first_valid = state.next_taken;
        state.next_delivered = state.next_taken;
        state.is_halted = false;
        let dropped = std::mem::take(&mut state.results);
        drop(state);
        drop(dropped);
        self.changed.notify_all();
    }
}

#[deny(clippy::missing_trait_methods)]
impl Deliverer for BatchMapper {
    fn wait_within(&self, timeout: Duration) -> Result<bool, Error> {
        if self.is_ahead { self.shared.wait_for_result(timeout) } else { self.shared.inner.wait_within(timeout) }
    }

    fn take(&self) -> Result<Option<Delivered>, Error> {
        let shared = &self.shared;
        if !self.is_ahead {
            return shared.take_now();
        }
        let mut state = shared.state.lock();
        let number = state.next_delivered;
        let error = match state.results.get_mut(&number) {
            None => return Ok(None),
            Some(Err(Failure::Function { number, epoch, source })) => {
                Error::Batch { number: *number, epoch: *epoch, source: Arc::clone(source) }
            }
            Some(Err(Failure::Inner(error))) => {
                let Some(error) = error.take() else {
                    drop(state);
                    // It raises the same error again.
                    return shared.inner.wait_within(Duration::ZERO).map(|_| None);
                };
                error
            }
            Some(Ok(_)) => {
                let delivered = state.results.remove(&number);
                state.next_delivered += 1;
                drop(state);
                shared.changed.notify_all();
                return delivered.transpose().map_err(Error::from);
            }
        };
        Err(error)
    }

    fn seek(&self, received: &Received) {
        self.shared.state.lock().seeking += 1;
        self.shared.changed.notify_all();
        // No thread takes a batch meanwhile, so every batch that is taken later comes from the new place.
        let _taking = self.shared.taking.lock();
        self.shared.inner.seek(received);
        let mut state = self.shared.state.lock();
        state.seeking -= 1;
        self.shared.jump(state, received);
    }

    fn queue(&self) -> QueueSnapshot {
        self.shared.inner.queue()
    }

    fn workers(&self) -> usize {
        self.shared.inner.workers()
    }

    fn ends_with_iteration(&self) -> bool {
        self.shared.inner.ends_with_iteration()
    }

    fn leave_slabs(&self) -> Option<Pool> {
        self.shared.inner.leave_slabs()
    }

    fn close(&self) {
        let shared = &self.shared;
        shared.cancel.cancel();
        shared.state.lock().is_closed = true;
        shared.changed.notify_all();
        shared.inner.close();
        let left = self.threads.join_within(CLOSE_TIME);
        if left > 0 {
            tracing::warn!(
                threads = left,
                "closed while a function still mapped a batch; its thread will end by itself"
            );
        }
        shared.functions.functions.iter().for_each(|function| function.release());
    }
}

impl Drop for BatchMapper {
    fn drop(&mut self) {
        self.close();
    }
}
