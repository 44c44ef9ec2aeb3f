//! The thread that reads ahead, and the state that it shares with callers.
//!
//! The thread takes the next chunk of samples from the [`ReadOrder`], merges their parts into ranges, and reads them while there is
//! room: from a disk one at a time, from a peer many at once. Tasks whose samples are all here are handed over.
//!
//! Always true: no lock is held while a task is handed over, memory is freed, data is read or an order is computed. If the thread
//! ends, waiting tasks are handed over, and their samples are read one by one.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_data::store::{Answer, Fetch, StoreError};
use feedline_memory::{Condvar, Mutex};
use feedline_order::{Epoch, SampleRequest};

use super::super::reader::Part;
use super::buffer::{Complete, PendingNumber, ReadBuffer, TaskKey, TaskRequest};
use super::needs::Needs;
use super::order::{Load, ReadOrder, ReadPriority, SampleRead};
use super::range::{DiskReader, PartRequest, ReadRange, coalesce};
use crate::metrics::{ReservoirSnapshot, TrafficMeter};

/// State shared by the thread and its callers.
#[derive(Debug)]
pub(super) struct Reads {
    pub needs: Arc<dyn Needs>,
    pub order: Box<dyn ReadOrder>,
    pub traffic: Arc<TrafficMeter>,
    state: Mutex<ReadsState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ReadsState {
    buffer: ReadBuffer,
    /// Ranges that have not started.
    queue: BTreeMap<(ReadPriority, RangeNumber), ReadRange>,
    /// Ranges that are being fetched from peers.
    fetches: HashMap<RangeNumber, UnderWay>,
    /// Answers of peers that the thread has not taken yet.
    answers: VecDeque<(RangeNumber, Answer)>,
    /// The number of the latest range.
    last_range: RangeNumber,
    /// Whether the thread should end.
    is_closing: bool,
    /// Whether the thread has ended or could not be started. Tasks are then handed over at once.
    has_ended: bool,
}

/// The number of a range in this supply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct RangeNumber(u64);

/// A range that is being fetched. Dropping it cancels the fetch.
#[derive(Debug)]
struct UnderWay {
    range: ReadRange,
    _fetch: Fetch,
}

/// The next action of the thread.
enum ReadStep {
    /// Compute the order of an epoch.
    Open(Epoch),
    /// Plan the reads of samples.
    Chunk(Vec<(SampleRead, PendingNumber)>),
    /// Start a range.
    Range(RangeNumber, ReadRange),
    /// Take the answer of a peer.
    Answer(UnderWay, Answer),
}

/// Answers and ranges that nobody needs. They are dropped after the lock is released, because that frees memory and cancels
/// fetches.
#[derive(Default)]
struct Unwanted {
    answers: Vec<Answer>,
    ranges: Vec<ReadRange>,
}

impl Unwanted {
    fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.ranges.is_empty()
    }
}

/// Attached to a task that was handed over. Releases its samples when dropped.
struct Holding {
    reads: Arc<Reads>,
    key: TaskKey,
    requests: Vec<SampleRequest>,
}

impl Drop for Holding {
    fn drop(&mut self) {
        // The memory is freed without the lock. Only then is there room, so the thread is woken last.
        let freed = self.reads.state.lock().buffer.release(self.key, self.requests.iter().copied());
        drop(freed);
        self.reads.wake();
    }
}

impl ReadsState {
    /// Decides the next step of the thread. `None` if it has to wait. Ranges and answers that nobody needs go to `unwanted`.
    fn next(&mut self, needs: &dyn Needs, order: &dyn ReadOrder, unwanted: &mut Unwanted) -> Option<ReadStep> {
        // Answers first: they may complete tasks and free room for the next range.
        while let Some((number, answer)) = self.answers.pop_front() {
            match self.fetches.remove(&number) {
                Some(under_way) => return Some(ReadStep::Answer(under_way, answer)),
                // Its fetch was cancelled because nobody needed the range any more.
                None => unwanted.answers.push(answer),
            }
        }
        if let Some(epoch) = order.next_epoch() {
            return Some(ReadStep::Open(epoch));
        }
        let chunk = order.next_chunk(&mut self.buffer, self.queue.is_empty());
        if !chunk.is_empty() {
            let numbered = |read: SampleRead| Some((read, self.buffer.pending_number(read.request)?));
            return Some(ReadStep::Chunk(chunk.into_iter().filter_map(numbered).collect()));
        }
        while let Some(first) = self.queue.first_entry()
            && self.fetches.len() < needs.most_requests()
        {
            if is_wanted(&self.buffer, first.get()) {
                let under_way = || self.fetches.values().map(|under_way| &under_way.range);
                let bytes = self.buffer.bytes() + under_way().map(|range| range.target.bytes()).sum::<u64>();
                let soonest = under_way()
                    .map(|range| range.priority)
                    .chain(self.buffer.soonest_ready().map(ReadPriority::from))
                    .min();
                // The first range decides. A later, smaller range must not overtake it, or the first could wait for ever.
                return order.has_room(first.get(), &Load { bytes, soonest }).then(|| {
                    let ((_, number), range) = first.remove_entry();
                    ReadStep::Range(number, range)
                });
            }
            unwanted.ranges.push(first.remove());
        }
        None
    }

    /// Drops held samples, planned reads and fetches, but keeps the tasks. Returns what it dropped, for the caller to drop after it
    /// releases the lock.
    fn clear(&mut self) -> impl Sized + use<> {
        let under_way = (std::mem::take(&mut self.fetches), std::mem::take(&mut self.answers));
        (self.buffer.clear(), std::mem::take(&mut self.queue), under_way)
    }
}

/// Whether a sample of the range is still pending.
fn is_wanted(buffer: &ReadBuffer, range: &ReadRange) -> bool {
    range.parts.iter().any(|part| buffer.pending_number(part.request) == Some(part.number))
}

impl Reads {
    pub(super) fn new(needs: Arc<dyn Needs>, order: Box<dyn ReadOrder>, traffic: Arc<TrafficMeter>) -> Self {
        Self { needs, order, traffic, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Adds tasks. Hands over those whose samples are all here.
    pub(super) fn request(self: &Arc<Self>, mut tasks: Vec<TaskRequest>) {
        // The stream may have jumped or closed meanwhile.
        tasks.retain(|task_request| task_request.ready.expects(&task_request.task));
        self.request_again(tasks, Vec::new());
    }

    /// Adds tasks, then releases the entries `old`, which some of them had in the buffer before.
    fn request_again(self: &Arc<Self>, tasks: Vec<TaskRequest>, old: Vec<(TaskKey, Vec<SampleRead>)>) {
        // Before the lock is taken: this may compute the order of a whole epoch.
        let reads = self.order.locate(&tasks);
        let mut complete = Complete::new();
        let mut state = self.state.lock();
        if state.has_ended {
            drop(state);
            return tasks.into_iter().for_each(|TaskRequest { task, ready, .. }| ready.ready(vec![task]));
        }
        for (task_request, reads) in tasks.into_iter().zip(reads) {
            state.buffer.request(task_request, reads, &*self.order, &mut complete);
        }
        let release =
            |(key, reads): (TaskKey, Vec<SampleRead>)| state.buffer.release(key, reads.iter().map(|read| read.request));
        // After the new requests: a sample that both request stays in the buffer.
        let freed: Vec<_> = old.into_iter().map(release).collect();
        let ReadsState { buffer, fetches, .. } = &mut *state;
        // Fetches for samples that only released tasks requested. Dropping them cancels them.
        let useless: Vec<_> = fetches.extract_if(|_, under_way| !is_wanted(buffer, &under_way.range)).collect();
        drop(state);
        drop((freed, useless));
        self.wake();
        self.hand_over(complete);
    }

    /// Wakes the thread after the state or the booked bytes changed. Booked bytes change without the lock, so the thread may have
    /// read the old number and be about to wait. It holds the lock until it waits. So once this function has the lock, the thread
    /// either waits and gets the notification, or will read the new number.
    fn wake(&self) {
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    /// Hands complete tasks to their runs, with a [`Holding`] that keeps their samples until the task is dropped.
    fn hand_over(self: &Arc<Self>, complete: Complete) {
        for (key, waiting) in complete {
            let TaskRequest { mut task, ready, .. } = waiting.task_request;
            let requests = waiting.reads.iter().map(|read| read.request).collect();
            task.was_read_ahead = waiting.has_parts;
            task.hold(Holding { reads: Arc::clone(self), key, requests });
            ready.ready(vec![task]);
        }
    }

    /// Drops tasks that nobody expects, and the samples that only they requested. If the order restarts, all held samples and
    /// planned reads are dropped.
    pub(super) fn forget(self: &Arc<Self>) {
        let mut state = self.state.lock();
        // Restart and clear under one lock. Otherwise the thread could plan a chunk of the old order in between.
        let dropped = self.order.restart().then(|| state.clear());
        let waiting = state.buffer.take_waiting();
        drop(state);
        drop(dropped);
        let (mut expected, mut old) = (Vec::new(), Vec::new());
        for (key, waiting) in waiting {
            old.push((key, waiting.reads));
            let task_request = waiting.task_request;
            if task_request.ready.expects(&task_request.task) {
                expected.push(task_request);
            }
        }
        self.request_again(expected, old);
    }

    /// The parts that were read for a sample. Empty if nothing was read ahead.
    pub(super) fn parts_of(&self, request: SampleRequest) -> Arc<[Part]> {
        self.state.lock().buffer.parts_of(request)
    }

    /// The state of the buffer, if the order shows it to the user.
    pub(super) fn snapshot(&self) -> Option<ReservoirSnapshot> {
        self.order.shown_size().map(|size| self.state.lock().buffer.snapshot(size))
    }

    /// Records that there is no thread. Samples are read one by one.
    pub(super) fn give_up(&self) {
        self.state.lock().has_ended = true;
    }

    /// Asks the thread to end and waits up to `limit`. Returns whether it ended.
    pub(super) fn close(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = self.state.lock();
        state.is_closing = true;
        self.changed.notify_all();
        while !state.has_ended {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.changed.wait_for(&mut state, left);
        }
        true
    }

    /// The body of the thread.
    pub(super) fn run(self: &Arc<Self>) {
        if catch_unwind(AssertUnwindSafe(|| self.read_on())).is_err() {
            tracing::error!("the thread that reads ahead panicked; samples are read one by one");
        }
        let mut state = self.state.lock();
        state.has_ended = true;
        let (dropped, waiting) = (state.clear(), state.buffer.take_waiting());
        drop(state);
        // Wakes `close`, which waits for `has_ended`.
        self.changed.notify_all();
        drop(dropped);
        for waiting in waiting.into_values() {
            let TaskRequest { task, ready, .. } = waiting.task_request;
            ready.ready(vec![task]);
        }
    }

    /// Takes step after step until closed.
    fn read_on(self: &Arc<Self>) {
        let mut disk = DiskReader::default();
        while let Some(next) = self.next() {
            match next {
                ReadStep::Open(epoch) => self.order.open(epoch),
                ReadStep::Chunk(chunk) => self.plan(&chunk),
                ReadStep::Range(number, range) if range.target.is_remote() => self.fetch(number, range),
                ReadStep::Range(_, range) => self.read(range, &mut disk),
                ReadStep::Answer(UnderWay { range, .. }, answer) => {
                    self.traffic.add(range.epoch, answer.traffic);
                    self.put(&range, answer.bytes.map(Cow::Owned));
                }
            }
        }
    }

    /// Blocks until there is something to do. Returns `None` once closed.
    fn next(&self) -> Option<ReadStep> {
        let mut state = self.state.lock();
        while !state.is_closing {
            let mut unwanted = Unwanted::default();
            if let Some(next) = state.next(&*self.needs, &*self.order, &mut unwanted) {
                // Released before `unwanted` is dropped, which frees memory.
                drop(state);
                return Some(next);
            }
            if !unwanted.is_empty() {
                drop(state);
                drop(unwanted);
                state = self.state.lock();
                continue;
            }
            self.changed.wait(&mut state);
        }
        None
    }

    /// Finds the parts of the samples in a chunk, merges them into ranges and queues these.
    fn plan(self: &Arc<Self>, chunk: &[(SampleRead, PendingNumber)]) {
        let mut parts = Vec::with_capacity(chunk.len());
        let mut counts = Vec::with_capacity(chunk.len());
        for &(SampleRead { request, reading, priority, .. }, number) in chunk {
            let targets = catch_unwind(AssertUnwindSafe(|| self.needs.needs(request, reading)));
            // If its parts cannot be located, nothing of this sample is read ahead. Loading it reports the error.
            let targets = targets.ok().and_then(Result::ok).unwrap_or_default();
            counts.push((request, number, targets.len()));
            parts.extend(targets.into_iter().map(|target| PartRequest { request, number, priority, target }));
        }
        let ranges = coalesce(parts, self.order.grouping());
        let mut complete = Complete::new();
        let mut state = self.state.lock();
        let mut has_planned = false;
        for (request, number, parts) in counts {
            has_planned |= state.buffer.plan(request, number, parts, &mut complete);
        }
        // If no sample of the chunk is pending any more, no range is queued. Otherwise all are: `next` drops those that are not
        // wanted.
        for range in ranges.into_iter().filter(|_| has_planned) {
            state.last_range.0 += 1;
            let key = (range.priority, state.last_range);
            state.queue.insert(key, range);
        }
        drop(state);
        self.hand_over(complete);
    }

    /// Starts to fetch a range from a peer.
    fn fetch(self: &Arc<Self>, number: RangeNumber, mut range: ReadRange) {
        self.needs.renew(&mut range.target);
        // A strong reference would keep the supply alive until the peer answers.
        let reads = Arc::downgrade(self);
        let done = Box::new(move |answer| {
            let Some(reads) = reads.upgrade() else { return };
            reads.state.lock().answers.push_back((number, answer));
            reads.changed.notify_all();
        });
        let fetch = self.needs.fetch(&range.target, done);
        // The answer may already be in `answers`. Only this thread takes answers, after it has inserted the fetch.
        self.state.lock().fetches.insert(number, UnderWay { range, _fetch: fetch });
    }

    /// Reads a range from a disk. Stops if it is no longer wanted.
    fn read(self: &Arc<Self>, mut range: ReadRange, disk: &mut DiskReader) {
        let mut target = range.target.clone();
        let is_wanted = || {
            let state = self.state.lock();
            !state.is_closing && is_wanted(&state.buffer, &range)
        };
        let bytes = disk.read(&mut target, is_wanted);
        range.target = target;
        if let Some(bytes) = bytes {
            self.put(&range, Ok(Cow::Borrowed(bytes)));
        }
    }

    /// Divides the bytes of a range among its samples, and hands over the tasks that are complete now.
    fn put(self: &Arc<Self>, range: &ReadRange, bytes: Result<Cow<'_, [u8]>, StoreError>) {
        let len = bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        // Copying the parts happens without the lock. Only the counter is shared.
        let booked = Arc::clone(&self.state.lock().buffer.booked);
        let parts = range.divide(bytes, self.order.grouping(), &booked);
        let mut complete = Complete::new();
        let mut state = self.state.lock();
        let freed = state.buffer.put(parts, len, &mut complete);
        drop(state);
        drop(freed);
        self.hand_over(complete);
    }
}
