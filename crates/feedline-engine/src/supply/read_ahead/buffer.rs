//! Samples that were read, tasks that wait for samples, and the bytes held.
//!
//! In: tasks, parts of samples as they are read, and released tasks. Out: complete tasks. A task is *complete* when none of its
//! samples is still to be read. Nothing here reads, blocks or calls out, so all of it runs under one lock.
//!
//! A sample that will be read is *pending*. Once each of its parts was read or could not be read, it is *held*.
//!
//! Always true: a requested sample is held until the last task that requested it is released, or until `clear`. A task that was
//! handed over before `clear` reads its samples itself. A task waits only for samples that will be read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_order::SampleRequest;

use super::super::reader::Part;
use super::super::{Reading, Ready};
use super::order::{ReadOrder, SampleRead};
use crate::metrics::ReservoirSnapshot;
use crate::slot_ref::SlotRef;
use crate::supply::Task;

/// A task in the buffer, ordered by need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskKey {
    need: SlotRef,
    /// Distinguishes requests for the same slot: of several runs that share this supply, and of a task that `Reads::forget`
    /// requests again before its old entry is released.
    number: u64,
}

/// A task and where to announce it.
pub(super) struct TaskRequest {
    pub task: Task,
    pub reading: Reading,
    pub ready: Arc<dyn Ready>,
}

impl fmt::Debug for TaskRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TaskRequest").field(&self.task).finish()
    }
}

/// A task that waits for samples.
#[derive(Debug)]
pub(super) struct WaitingTask {
    pub task_request: TaskRequest,
    /// Its samples, in slot order.
    pub reads: Vec<SampleRead>,
    /// Number of its samples that are still to be read.
    missing: usize,
    /// Whether bytes were read ahead for it. Set when it is complete.
    pub has_parts: bool,
}

/// Complete tasks. They are handed over after the lock is released.
pub(super) type Complete = Vec<(TaskKey, WaitingTask)>;

/// The number of a [`PendingSample`]. A sample that is dropped and requested again gets a new number, so parts that were read for
/// the old request do not count for the new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PendingNumber(u64);

/// A sample that will be read.
#[derive(Debug)]
struct PendingSample {
    number: PendingNumber,
    /// The parts so far. A part that could not be read is left out.
    parts: Vec<Part>,
    /// Number of parts that are still to be read. `None` until `plan` sets it.
    missing: Option<usize>,
}

/// A part that was read, and its sample.
#[derive(Debug)]
pub(super) struct ReadPart {
    pub request: SampleRequest,
    pub number: PendingNumber,
    /// `None` if it could not be read.
    pub part: Option<Part>,
}

/// Samples and parts that no task needs. The caller drops them after it releases the lock, because that frees memory.
#[derive(Debug, Default)]
pub(super) struct Freed {
    held: Vec<Arc<[Part]>>,
    pending: Vec<PendingSample>,
    parts: Vec<ReadPart>,
}

/// The buffer. See the module.
#[derive(Debug, Default)]
pub(super) struct ReadBuffer {
    /// Samples that were read, with those of their parts that could be read.
    held: HashMap<SampleRequest, Arc<[Part]>>,
    /// Samples that will be read.
    pending: HashMap<SampleRequest, PendingSample>,
    /// Requested samples that are in no chunk yet. Some may no longer be pending: `take_announced` leaves those out.
    announced: Vec<SampleRead>,
    /// Tasks with missing samples.
    waiting: BTreeMap<TaskKey, WaitingTask>,
    /// Complete tasks that are not yet released.
    ready: BTreeSet<TaskKey>,
    /// The tasks, waiting or ready, that requested each sample.
    requested_by: HashMap<SampleRequest, Vec<TaskKey>>,
    /// Number of requested samples, counted once per task.
    requested: u64,
    /// The last number that was given to a task or to a pending sample.
    numbers: u64,
    /// Bytes of parts that are held, or still in use by a thread.
    pub booked: Arc<AtomicU64>,
    peak_bytes: u64,
    /// Number of ranges that were read, and their bytes including gaps.
    reads: u64,
    read_bytes: u64,
}

impl ReadBuffer {
    /// Adds a task. Adds it to `complete` if none of its samples is still to be read.
    pub(super) fn request(
        &mut self,
        task_request: TaskRequest,
        reads: Vec<SampleRead>,
        order: &dyn ReadOrder,
        complete: &mut Complete,
    ) {
        self.numbers += 1;
        let key = TaskKey { need: task_request.task.need(), number: self.numbers };
        let mut missing = 0;
        for read in &reads {
            self.requested_by.entry(read.request).or_default().push(key);
            let is_here = self.held.contains_key(&read.request);
            // A sample that nobody will read does not count as missing. The preparer reads it itself.
            if !is_here && (self.is_pending(read.request) || order.will_read(read, self)) {
                missing += 1;
            }
        }
        self.requested += reads.len() as u64;
        self.waiting.insert(key, WaitingTask { task_request, reads, missing, has_parts: false });
        if missing == 0 {
            self.complete(key, complete);
        }
    }

    /// Moves a waiting task to `complete`.
    fn complete(&mut self, key: TaskKey, complete: &mut Complete) {
        if let Some(mut waiting) = self.waiting.remove(&key) {
            let held = |read: &SampleRead| self.held.get(&read.request);
            waiting.has_parts = waiting.reads.iter().filter_map(held).any(|parts| !parts.is_empty());
            self.ready.insert(key);
            complete.push((key, waiting));
        }
    }

    /// Adds a requested sample to the next chunk.
    pub(super) fn announce(&mut self, read: SampleRead) {
        self.announced.push(read);
        self.expect(read.request);
    }

    /// Takes the announced samples that are still needed.
    pub(super) fn take_announced(&mut self) -> Vec<SampleRead> {
        let mut announced = std::mem::take(&mut self.announced);
        announced.retain(|read| self.is_pending(read.request));
        announced
    }

    /// Makes a sample pending, if it is not pending already.
    pub(super) fn expect(&mut self, request: SampleRequest) {
        self.pending.entry(request).or_insert_with(|| {
            self.numbers += 1;
            PendingSample { number: PendingNumber(self.numbers), parts: Vec::new(), missing: None }
        });
    }

    /// Whether a sample will be read.
    pub(super) fn is_pending(&self, request: SampleRequest) -> bool {
        self.pending.contains_key(&request)
    }

    /// Whether a task waits for a sample.
    pub(super) fn is_awaited(&self, request: SampleRequest) -> bool {
        let keys = self.requested_by.get(&request).into_iter().flatten();
        keys.into_iter().any(|key| self.waiting.contains_key(key))
    }

    /// The number of a pending sample.
    pub(super) fn pending_number(&self, request: SampleRequest) -> Option<PendingNumber> {
        self.pending.get(&request).map(|pending| pending.number)
    }

    /// Sets the number of parts of a pending sample. Without parts it is complete. Returns false if it is no longer pending.
    pub(super) fn plan(
        &mut self,
        request: SampleRequest,
        number: PendingNumber,
        parts: usize,
        complete: &mut Complete,
    ) -> bool {
        let Some(pending) = self.pending.get_mut(&request).filter(|pending| pending.number == number) else {
            return false;
        };
        pending.missing = Some(parts);
        if parts == 0 {
            self.arrive(request, complete);
        }
        true
    }

    /// Stores the parts of a range that was read with `range_bytes` bytes. Returns the parts of samples that are no longer pending.
    pub(super) fn put(&mut self, parts: Vec<ReadPart>, range_bytes: u64, complete: &mut Complete) -> Freed {
        self.reads += 1;
        self.read_bytes += range_bytes;
        self.peak_bytes = self.peak_bytes.max(self.bytes());
        let mut freed = Freed::default();
        for read in parts {
            match self.pending.get_mut(&read.request) {
                // A part that was read for an older request has another number, and is freed.
                Some(PendingSample { number, parts, missing: Some(missing) }) if *number == read.number => {
                    parts.extend(read.part);
                    *missing -= 1;
                    if *missing == 0 {
                        self.arrive(read.request, complete);
                    }
                }
                _ => freed.parts.push(read),
            }
        }
        freed
    }

    /// Moves a sample from pending to held. Completes the tasks that waited only for it.
    fn arrive(&mut self, request: SampleRequest, complete: &mut Complete) {
        let Some(pending) = self.pending.remove(&request) else { return };
        self.held.insert(request, pending.parts.into());
        // Collected first, because `Self::complete` removes from the map that this loop reads.
        let mut completed = Vec::new();
        for key in self.requested_by.get(&request).into_iter().flatten() {
            if let Some(waiting) = self.waiting.get_mut(key) {
                waiting.missing -= 1;
                completed.extend((waiting.missing == 0).then_some(*key));
            }
        }
        for key in completed {
            self.complete(key, complete);
        }
    }

    /// The parts held for a sample. Empty if none are.
    pub(super) fn parts_of(&self, request: SampleRequest) -> Arc<[Part]> {
        self.held.get(&request).map_or_else(Arc::default, Arc::clone)
    }

    /// Releases a task. Returns what was held or pending for it alone, to be dropped after the lock is released.
    pub(super) fn release(&mut self, key: TaskKey, requests: impl Iterator<Item = SampleRequest>) -> Freed {
        self.ready.remove(&key);
        let mut freed = Freed::default();
        for request in requests {
            let Some(keys) = self.requested_by.get_mut(&request) else { continue };
            let Some(place) = keys.iter().position(|other| *other == key) else { continue };
            // The order of the keys carries no meaning.
            keys.swap_remove(place);
            self.requested -= 1;
            if keys.is_empty() {
                self.requested_by.remove(&request);
                freed.held.extend(self.held.remove(&request));
                freed.pending.extend(self.pending.remove(&request));
            }
        }
        freed
    }

    /// Drops all held and pending samples, but keeps the tasks. Returns the samples, to be dropped after the lock is released.
    pub(super) fn clear(&mut self) -> impl Sized + use<> {
        self.requested = 0;
        self.requested_by.clear();
        self.announced.clear();
        (std::mem::take(&mut self.held), std::mem::take(&mut self.pending))
    }

    /// Takes the waiting tasks out of the buffer. The samples that they requested stay until the tasks are released.
    pub(super) fn take_waiting(&mut self) -> BTreeMap<TaskKey, WaitingTask> {
        std::mem::take(&mut self.waiting)
    }

    /// Number of held and pending samples.
    pub(super) fn samples(&self) -> u64 {
        (self.held.len() + self.pending.len()) as u64
    }

    /// Number of requested samples, counted once per task.
    pub(super) fn requested(&self) -> u64 {
        self.requested
    }

    /// Bytes of parts that are held, or still in use by a thread.
    pub(super) fn bytes(&self) -> u64 {
        // Relaxed: threads book and release without the lock. `Reads::wake` makes the reading thread look again after a release.
        self.booked.load(Ordering::Relaxed)
    }

    /// The earliest need among ready tasks.
    pub(super) fn soonest_ready(&self) -> Option<SlotRef> {
        self.ready.first().map(|key| key.need)
    }

    /// Whether the first waiting task is needed before all ready tasks, and none of its samples is pending. It must not wait for
    /// room in the buffer: room comes only from ready tasks, and they may have to wait until its batch is delivered.
    pub(super) fn is_starved(&self) -> bool {
        self.waiting.first_key_value().is_some_and(|(key, waiting)| {
            !waiting.reads.iter().any(|read| self.is_pending(read.request))
                && self.ready.first().is_none_or(|ready| key < ready)
        })
    }

    pub(super) fn snapshot(&self, size: u64) -> ReservoirSnapshot {
        ReservoirSnapshot {
            size,
            samples: self.held.len() as u64,
            bytes: self.bytes(),
            peak_bytes: self.peak_bytes,
            reads: self.reads,
            read_bytes: self.read_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::range::{ReadTarget, fetched};
    use super::*;
    use feedline_data::store::Form;
    use feedline_order::{Epoch, Occurrence, SampleId};

    fn read(buffer: &ReadBuffer, request: SampleRequest, number: PendingNumber) -> ReadPart {
        let target = ReadTarget::Sample { request, form: Form::RAW, bytes: 10, reading: Reading::Plain };
        ReadPart { request, number, part: Some(fetched(target, Ok(vec![0; 10]), &buffer.booked)) }
    }

    #[test]
    fn a_sample_that_is_requested_again_waits_for_parts_of_its_own() {
        let (mut buffer, mut complete) = (ReadBuffer::default(), Complete::new());
        let request = SampleRequest { id: SampleId(3), epoch: Epoch(0), occurrence: Occurrence(0) };
        buffer.expect(request);
        let first = buffer.pending_number(request).unwrap();
        assert!(buffer.plan(request, first, 2, &mut complete));
        drop(buffer.clear());
        buffer.expect(request);
        let second = buffer.pending_number(request).unwrap();
        assert!(!buffer.plan(request, first, 2, &mut complete), "the plan of the old request is ignored");
        assert!(buffer.plan(request, second, 2, &mut complete));
        for number in [first, second] {
            let parts = vec![read(&buffer, request, number)];
            drop(buffer.put(parts, 10, &mut complete));
            assert!(buffer.is_pending(request), "its second part is missing");
        }
        assert_eq!(buffer.bytes(), 10, "the part of the old request is freed");
        let parts = vec![read(&buffer, request, second)];
        drop(buffer.put(parts, 10, &mut complete));
        assert!(!buffer.is_pending(request));
        assert_eq!(buffer.parts_of(request).len(), 2);
    }
}
