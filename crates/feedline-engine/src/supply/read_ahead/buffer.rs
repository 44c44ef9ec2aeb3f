//! The samples that were read, the tasks that wait for samples, and the bytes that are held.
//!
//! In: tasks, the parts of samples as they are read, news of tasks that are gone. Out: tasks whose samples are all here. Nothing
//! here reads, waits or calls out, so all of it runs under one lock.
//!
//! Always true: a sample is held until the last task that asked for it is gone. A task waits only for samples that will come.

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
    /// Tells tasks apart that fill the same slots before and after a jump.
    number: u64,
}

/// A task that asks for samples.
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

/// A task whose samples are not all here.
#[derive(Debug)]
pub(super) struct WaitingTask {
    pub asking: TaskRequest,
    pub reads: Vec<SampleRead>,
    /// Samples that are not here.
    missing: usize,
    /// Whether something was read for it, once it is complete.
    pub has_parts: bool,
}

/// Tasks whose samples are here, to be handed over without the lock.
pub(super) type Complete = Vec<(TaskKey, WaitingTask)>;

/// The number of a [`PendingSample`]. A sample that is dropped and asked for again gets another one, so that parts which were read
/// for the first are not counted for the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PendingNumber(u64);

/// A sample that will be read: its parts that are here, and how many are missing once that is known.
#[derive(Debug)]
struct PendingSample {
    number: PendingNumber,
    parts: Vec<Part>,
    missing: Option<usize>,
}

/// A part that was read, and the sample that it was read for.
#[derive(Debug)]
pub(super) struct ReadPart {
    pub request: SampleRequest,
    pub number: PendingNumber,
    /// None if it could not be read.
    pub part: Option<Part>,
}

/// What nobody needs any more; its memory is freed without the lock.
#[derive(Debug, Default)]
pub(super) struct Freed {
    held: Vec<Arc<[Part]>>,
    pending: Vec<PendingSample>,
    parts: Vec<ReadPart>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ReadBuffer {
    held: HashMap<SampleRequest, Arc<[Part]>>,
    pending: HashMap<SampleRequest, PendingSample>,
    /// Samples that tasks ask for and that are in no chunk yet; they are pending.
    announced: Vec<SampleRead>,
    waiting: BTreeMap<TaskKey, WaitingTask>,
    /// Tasks that were handed over and are not gone.
    ready: BTreeSet<TaskKey>,
    /// The tasks, waiting or ready, that ask for a sample.
    asked_by: HashMap<SampleRequest, Vec<TaskKey>>,
    /// Samples that tasks ask for, counted once for each task.
    asked: u64,
    /// Counts the tasks and the pending samples so far.
    numbers: u64,
    /// Bytes of parts, held or still in use by a thread.
    pub booked: Arc<AtomicU64>,
    peak_bytes: u64,
    reads: u64,
    read_bytes: u64,
}

impl ReadBuffer {
    /// Takes a task; it is complete if nothing of it is still to come.
    pub(super) fn ask(
        &mut self,
        asking: TaskRequest,
        reads: Vec<SampleRead>,
        order: &dyn ReadOrder,
        complete: &mut Complete,
    ) {
        self.numbers += 1;
        let key = TaskKey { need: asking.task.need(), number: self.numbers };
        let mut missing = 0;
        for read in &reads {
            self.asked_by.entry(read.request).or_default().push(key);
            let is_here = self.held.contains_key(&read.request);
            if !is_here && (self.is_pending(read.request) || order.will_read(read, self)) {
                missing += 1;
            }
        }
        self.asked += reads.len() as u64;
        self.waiting.insert(key, WaitingTask { asking, reads, missing, has_parts: false });
        if missing == 0 {
            self.complete(key, complete);
        }
    }

    fn complete(&mut self, key: TaskKey, complete: &mut Complete) {
        if let Some(mut waiting) = self.waiting.remove(&key) {
            let held = |read: &SampleRead| self.held.get(&read.request);
            waiting.has_parts = waiting.reads.iter().filter_map(held).any(|parts| !parts.is_empty());
            self.ready.insert(key);
            complete.push((key, waiting));
        }
    }

    /// Notes that a sample is read with the next chunk, because a task asks for it.
    pub(super) fn announce(&mut self, read: SampleRead) {
        self.announced.push(read);
        self.expect(read.request);
    }

    /// The samples that were announced and are still wanted.
    pub(super) fn take_announced(&mut self) -> Vec<SampleRead> {
        let mut announced = std::mem::take(&mut self.announced);
        announced.retain(|read| self.is_pending(read.request));
        announced
    }

    /// Makes a sample pending.
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

    /// The number of a sample that will be read.
    pub(super) fn pending_number(&self, request: SampleRequest) -> Option<PendingNumber> {
        self.pending.get(&request).map(|pending| pending.number)
    }

    /// Sets how many parts a pending sample has; one without parts is here. Returns false if it is not pending any more.
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

    /// Stores the parts of a range that was read. Returns the parts that no task needs any more.
    pub(super) fn put(&mut self, parts: Vec<ReadPart>, range_bytes: u64, complete: &mut Complete) -> Freed {
        self.reads += 1;
        self.read_bytes += range_bytes;
        self.peak_bytes = self.peak_bytes.max(self.bytes());
        let mut freed = Freed::default();
        for read in parts {
            match self.pending.get_mut(&read.request) {
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

    fn arrive(&mut self, request: SampleRequest, complete: &mut Complete) {
        let Some(pending) = self.pending.remove(&request) else { return };
        self.held.insert(request, pending.parts.into());
        let mut completed = Vec::new();
        for key in self.asked_by.get(&request).into_iter().flatten() {
            if let Some(waiting) = self.waiting.get_mut(key) {
                waiting.missing -= 1;
                completed.extend((waiting.missing == 0).then_some(*key));
            }
        }
        for key in completed {
            self.complete(key, complete);
        }
    }

    /// The parts that are held for a sample.
    pub(super) fn parts_of(&self, request: SampleRequest) -> Arc<[Part]> {
        self.held.get(&request).map_or_else(Arc::default, Arc::clone)
    }

    /// Forgets a task that is gone. Gives what was held or pending for it alone, to be dropped without the lock.
    pub(super) fn release(&mut self, key: TaskKey, requests: impl Iterator<Item = SampleRequest>) -> Freed {
        self.ready.remove(&key);
        let mut freed = Freed::default();
        for request in requests {
            let Some(keys) = self.asked_by.get_mut(&request) else { continue };
            let Some(place) = keys.iter().position(|other| *other == key) else { continue };
            keys.swap_remove(place);
            self.asked -= 1;
            if keys.is_empty() {
                self.asked_by.remove(&request);
                freed.held.extend(self.held.remove(&request));
                freed.pending.extend(self.pending.remove(&request));
            }
        }
        freed
    }

    /// Drops everything that is held and pending; gives it, to be dropped without the lock. Tasks that wait stay.
    pub(super) fn clear(&mut self) -> impl Sized + use<> {
        self.asked = 0;
        self.asked_by.clear();
        self.announced.clear();
        (std::mem::take(&mut self.held), std::mem::take(&mut self.pending))
    }

    pub(super) fn take_waiting(&mut self) -> BTreeMap<TaskKey, WaitingTask> {
        std::mem::take(&mut self.waiting)
    }

    /// Samples that are held or pending.
    pub(super) fn samples(&self) -> u64 {
        (self.held.len() + self.pending.len()) as u64
    }

    /// Samples that tasks ask for.
    pub(super) fn asked(&self) -> u64 {
        self.asked
    }

    /// Bytes that are held.
    pub(super) fn bytes(&self) -> u64 {
        self.booked.load(Ordering::Relaxed)
    }

    /// The need of the task that is needed soonest of those handed over.
    pub(super) fn soonest_ready(&self) -> Option<SlotRef> {
        self.ready.first().map(|key| key.need)
    }

    /// Whether a task is needed sooner than all that are ready, and no sample of it is pending. It cannot wait for room: those
    /// that are ready may never be taken before it.
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
        let target = ReadTarget::Sample { wanted: request, form: Form::RAW, bytes: 10, reading: Reading::Plain };
        ReadPart { request, number, part: Some(fetched(target, Ok(vec![0; 10]), &buffer.booked)) }
    }

    #[test]
    fn a_sample_that_is_asked_for_again_waits_for_parts_of_its_own() {
        let (mut buffer, mut complete) = (ReadBuffer::default(), Complete::new());
        let request = SampleRequest { id: SampleId(3), epoch: Epoch(0), occurrence: Occurrence(0) };
        buffer.expect(request);
        let first = buffer.pending_number(request).unwrap();
        assert!(buffer.plan(request, first, 2, &mut complete));
        drop(buffer.clear());
        buffer.expect(request);
        let second = buffer.pending_number(request).unwrap();
        assert!(!buffer.plan(request, first, 2, &mut complete), "a plan of before is ignored");
        assert!(buffer.plan(request, second, 2, &mut complete));
        for number in [first, second] {
            let parts = vec![read(&buffer, request, number)];
            drop(buffer.put(parts, 10, &mut complete));
            assert!(buffer.is_pending(request), "its second part is missing");
        }
        assert_eq!(buffer.bytes(), 10, "the part of before is freed");
        let parts = vec![read(&buffer, request, second)];
        drop(buffer.put(parts, 10, &mut complete));
        assert!(!buffer.is_pending(request));
        assert_eq!(buffer.parts_of(request).len(), 2);
    }
}
