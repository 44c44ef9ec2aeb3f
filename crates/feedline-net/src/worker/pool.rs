//! The workers of a loader.
//!
//! In: sockets of connected workers, one for each preparer thread. Out: samples. A worker that ends is reported with the sample
//! that it worked on. If the pool waits for replacements, the caller connects another worker, and the samples are made again.

use std::error::Error as StdError;
use std::fmt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use feedline_data::memory::Cancel;
use feedline_engine::supply::{Made, MadeContent, MadeSamples, MakeError, MakeRequest, SampleMaker};
use feedline_memory::{Condvar, Mutex, MutexGuard};
use feedline_order::random::{Purpose, StreamKey};
use feedline_order::{SampleRequest, Seed};

use super::frame::{Record, Status, call_frame, make_frame, read_made, read_result};
use super::link::{Link, LinkError, WorkerFiles};

/// How often a sample is made again after its worker was lost.
const MAX_REPLACEMENTS: usize = 3;
/// Interval at which a thread that waits for a replacement checks whether it should end.
const POLL: Duration = Duration::from_millis(50);
/// Interval at which a call checks whether its worker has become idle, and whether it should end.
const CALL_POLL: Duration = Duration::from_millis(5);

/// What happens when a worker is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// Its samples fail.
    Fail,
    /// The caller connects another worker, and its samples are made again.
    Replace,
}

/// The workers of a loader.
#[derive(Debug)]
pub struct WorkerPool {
    workers: Vec<Worker>,
    seed: Seed,
    on_loss: OnLoss,
}

#[derive(Debug)]
struct Worker {
    /// Locked while a request is under way.
    link: Mutex<Link>,
    state: Mutex<WorkerState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WorkerState {
    /// The samples of the current request. Empty between requests.
    samples: Vec<SampleRequest>,
    /// The files of the worker, once it said hello.
    files: Option<Arc<WorkerFiles>>,
    /// The sample that the worker made when it was lost.
    lost: Option<SampleRequest>,
    /// A worker that takes the place of the lost one.
    replacement: Option<UnixStream>,
}

/// A Python exception of a worker. It travels through the engine to the trainer.
#[derive(Debug)]
pub struct WorkerException {
    /// Its class and its message in one line, for the log.
    pub text: String,
    /// The exception, pickled.
    pub pickled: Vec<u8>,
}

impl WorkerException {
    /// Reads a payload: the length of the text (u32), the text, the pickle. `None` if it is too short.
    fn read(payload: &[u8]) -> Option<Self> {
        let (len, rest) = payload.split_first_chunk::<4>()?;
        let (text, pickled) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        Some(Self { text: String::from_utf8_lossy(text).into_owned(), pickled: pickled.to_vec() })
    }
}

impl fmt::Display for WorkerException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the dataset raised {}", self.text)
    }
}

impl StdError for WorkerException {}

/// Why a call to a worker gave no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The worker ended.
    #[error("worker {0} ended")]
    Lost(usize),
    /// The called function raised an exception, pickled.
    #[error("worker {worker} raised an exception")]
    Raised {
        /// The number of the worker.
        worker: usize,
        /// The exception.
        exception: Vec<u8>,
    },
    /// The caller was told to end.
    #[error("the call was cancelled")]
    Cancelled,
}

impl WorkerPool {
    /// A pool of connected workers. `seed` decides the seeds of their samples.
    pub fn new(streams: Vec<UnixStream>, seed: Seed, on_loss: OnLoss) -> Self {
        let worker =
            |stream| Worker { link: Mutex::new(Link::new(stream)), state: Mutex::default(), changed: Condvar::new() };
        Self { workers: streams.into_iter().map(worker).collect(), seed, on_loss }
    }

    /// The seed of a sample, for the random number generators of its worker.
    pub fn seed_of(seed: Seed, request: SampleRequest) -> u64 {
        // The top bit stays free: torch takes signed numbers.
        StreamKey::new(seed, request.epoch, Purpose::Worker).bits(request.id.0, request.occurrence.0, 0) >> 1
    }

    /// Whether lost workers may be replaced.
    pub fn replaces(&self) -> bool {
        self.on_loss == OnLoss::Replace
    }

    /// Workers that were lost and whose replacement is awaited, each with the sample that it made.
    pub fn lost(&self) -> Vec<(usize, SampleRequest)> {
        let lost = self.workers.iter().map(|worker| worker.state.lock().lost);
        lost.enumerate().filter_map(|(number, lost)| Some((number, lost?))).collect()
    }

    /// Connects a worker in place of a lost one.
    pub fn replace(&self, worker: usize, stream: UnixStream) {
        let worker = &self.workers[worker];
        let mut state = worker.state.lock();
        // The files of the lost worker say nothing about the new one.
        (state.lost, state.replacement, state.files) = (None, Some(stream), None);
        drop(state);
        worker.changed.notify_all();
    }

    /// The sample that a worker makes now, if it makes one.
    pub fn current(&self, worker: usize) -> Option<SampleRequest> {
        let state = self.workers[worker].state.lock();
        state.samples.get(state.files.as_ref()?.progress()).copied()
    }

    /// The Python stacks of a worker, from byte `start` on. It writes one each time it gets the signal for that.
    pub fn stacks(&self, worker: usize, start: u64) -> Option<Vec<u8>> {
        self.workers[worker].state.lock().files.as_ref()?.stacks(start)
    }

    /// Calls a function in a worker, once it makes no sample. `content` and the result are opaque.
    pub fn call(&self, worker: usize, content: &[u8], is_cancelled: &dyn Fn() -> bool) -> Result<Vec<u8>, CallError> {
        let mut link = self.workers[worker].idle_link(is_cancelled)?;
        link.frame = call_frame(content);
        let answered = match link.ask(None, is_cancelled) {
            Ok(body) => read_result(body),
            Err(LinkError::Cancelled) => {
                // Its reply would be taken for that of the next request.
                link.end();
                return Err(CallError::Cancelled);
            }
            Err(_) => return Err(CallError::Lost(worker)),
        };
        match answered {
            Ok((true, result)) => Ok(result),
            Ok((false, exception)) => Err(CallError::Raised { worker, exception }),
            Err(_) => Err(CallError::Lost(worker)),
        }
    }

    /// Asks a worker for samples, once.
    fn ask(&self, link: &mut Link, request: &MakeRequest<'_>) -> Result<MadeSamples, LinkError> {
        let MakeRequest { samples, indices, slots, cancel, .. } = request;
        if link.has_many_slabs() {
            link.forget_slabs();
        }
        let slots = slots.as_ref().map(|slots| (slots, link.is_new_slab(slots.slab.number)));
        let descriptor = slots.filter(|(_, is_new)| *is_new).map(|(slots, _)| slots.slab.descriptor);
        let seeded = samples.iter().map(|&sample| (sample.id.0, Self::seed_of(self.seed, sample)));
        make_frame(seeded, slots, *indices, &mut link.frame);
        let body = link.ask(descriptor, &|| cancel.is_cancelled())?;
        let (records, form) = read_made(body, samples.len()).map_err(LinkError::Answer)?;
        let samples = records.into_iter().map(|record| made(link, record)).collect::<Result<_, _>>()?;
        Ok(MadeSamples { samples, form })
    }
}

fn made(link: &Link, Record { time, offset, len, status }: Record) -> Result<Made, LinkError> {
    let payload = || if len == 0 { Ok(Vec::new()) } else { link.payload(offset, len) };
    let content = match status {
        Status::InSlot => MadeContent::InSlot(payload()?),
        Status::Payload => MadeContent::Payload(payload()?),
        Status::Raised => {
            let payload = payload()?;
            let exception = WorkerException::read(&payload).ok_or_else(|| {
                LinkError::Answer(format!("an exception of {} bytes is shorter than its text", payload.len()))
            })?;
            MadeContent::Failed(Arc::new(exception))
        }
        Status::Ended => MadeContent::Ended,
    };
    Ok(Made { time, content })
}

impl SampleMaker for WorkerPool {
    fn make(&self, request: MakeRequest<'_>) -> Result<MadeSamples, MakeError> {
        let number = request.worker;
        let worker = &self.workers[number];
        let mut link = worker.link.lock();
        let mut replaced = 0;
        loop {
            let sample = match worker.begin(&mut link, &request).and_then(|()| self.ask(&mut link, &request)) {
                Ok(made) => {
                    worker.state.lock().samples.clear();
                    return Ok(made);
                }
                Err(LinkError::Cancelled) => return Err(MakeError::Cancelled),
                Err(LinkError::Answer(problem)) => return Err(MakeError::Answer { worker: number, problem }),
                Err(LinkError::Lost(_)) => worker.progress().min(request.samples.len() - 1),
            };
            if self.on_loss == OnLoss::Fail || replaced == MAX_REPLACEMENTS {
                return Err(MakeError::WorkerLost { worker: number, sample });
            }
            replaced += 1;
            // Only a thread that waits says so: the caller starts one worker for each.
            worker.state.lock().lost = Some(request.samples[sample]);
            *link = worker.wait_for_replacement(request.cancel).ok_or(MakeError::Cancelled)?;
        }
    }
}

impl Worker {
    /// Waits until no request is under way.
    fn idle_link(&self, is_cancelled: &dyn Fn() -> bool) -> Result<MutexGuard<'_, Link>, CallError> {
        // The thread that holds the lock waits for a sample, which may never end. So this must not wait for the lock.
        loop {
            if let Some(link) = self.link.try_lock() {
                return Ok(link);
            }
            if is_cancelled() {
                return Err(CallError::Cancelled);
            }
            thread::sleep(CALL_POLL);
        }
    }

    /// Records the samples of a request that is about to be sent.
    fn begin(&self, link: &mut Link, request: &MakeRequest<'_>) -> Result<(), LinkError> {
        let files = link.greet(&|| request.cancel.is_cancelled())?;
        let mut state = self.state.lock();
        state.files = Some(files);
        state.samples.clear();
        state.samples.extend_from_slice(request.samples);
        Ok(())
    }

    /// The place in the request of the sample that the worker works on.
    fn progress(&self) -> usize {
        self.state.lock().files.as_ref().map_or(0, |files| files.progress())
    }

    /// Waits for another worker. `None` if the run was closed meanwhile.
    fn wait_for_replacement(&self, cancel: &Cancel) -> Option<Link> {
        let mut state = self.state.lock();
        loop {
            if let Some(stream) = state.replacement.take() {
                state.lost = None;
                return Some(Link::new(stream));
            }
            if cancel.is_cancelled() {
                return None;
            }
            self.changed.wait_for(&mut state, POLL);
        }
    }
}
