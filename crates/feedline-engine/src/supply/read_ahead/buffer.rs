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

/// Orders tasks by need; the number tells those apart that have the same.
pub(super) type TaskKey = (SlotRef, u64);

/// A task that asks for samples.
pub(super) struct Asking {
    pub task: Task,
    pub reading: Reading,
    pub ready: Arc<dyn Ready>,
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Asking").field(&self.task).finish()
    }
}

/// A task whose samples are not all here.
#[derive(Debug)]
pub(super) struct Waiting {
    pub asking: Asking,
    pub reads: Vec<SampleRead>,
    missing: usize,
}

/// Tasks whose samples are here, to be handed over without the lock.
pub(super) type Complete = Vec<(TaskKey, Waiting)>;

/// A sample that will be read: its parts that are here, and how many are missing once that is known.
#[derive(Debug, Default)]
struct Coming {
    parts: Vec<Part>,
    missing: Option<usize>,
}

/// What nobody needs any more; its memory is freed without the lock.
#[derive(Debug, Default)]
pub(super) struct Freed {
    held: Vec<Arc<[Part]>>,
    coming: Vec<Coming>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ReadBuffer {
    held: HashMap<SampleRequest, Arc<[Part]>>,
    coming: HashMap<SampleRequest, Coming>,
    /// Samples that tasks ask for and that are in no chunk yet; they count as coming.
    announced: Vec<SampleRead>,
    waiting: BTreeMap<TaskKey, Waiting>,
    /// Tasks that were handed over and are not gone.
    ready: BTreeSet<TaskKey>,
    /// The tasks, waiting or ready, that ask for a sample.
    asked_by: HashMap<SampleRequest, Vec<TaskKey>>,
    /// Samples that tasks ask for, counted once for each task.
    asked: u64,
    numbers: u64,
    /// Counts up when everything that is held is dropped.
    pub generation: u64,
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
        asking: Asking,
        reads: Vec<SampleRead>,
        order: &dyn ReadOrder,
        complete: &mut Complete,
    ) {
        self.numbers += 1;
        let key = (asking.task.need(), self.numbers);
        let mut missing = 0;
        for read in &reads {
            self.asked_by.entry(read.request).or_default().push(key);
            let is_here = self.held.contains_key(&read.request);
            if !is_here && (self.is_coming(read.request) || order.will_read(read, self)) {
                missing += 1;
            }
        }
        self.asked += reads.len() as u64;
        self.waiting.insert(key, Waiting { asking, reads, missing });
        if missing == 0 {
            self.complete(key, complete);
        }
    }

    fn complete(&mut self, key: TaskKey, complete: &mut Complete) {
        if let Some(waiting) = self.waiting.remove(&key) {
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
        announced.retain(|read| self.is_coming(read.request));
        announced
    }

    /// Counts a sample as coming.
    pub(super) fn expect(&mut self, request: SampleRequest) {
        self.coming.entry(request).or_default();
    }

    pub(super) fn is_coming(&self, request: SampleRequest) -> bool {
        self.coming.contains_key(&request)
    }

    /// Sets how many parts a sample has; one without parts is here.
    pub(super) fn plan(&mut self, request: SampleRequest, parts: usize, complete: &mut Complete) {
        let Some(coming) = self.coming.get_mut(&request) else { return };
        coming.missing = Some(parts);
        if parts == 0 {
            self.arrive(request, complete);
        }
    }

    /// Takes the parts of a range; none for a part that could not be read.
    pub(super) fn put(&mut self, parts: Vec<(SampleRequest, Option<Part>)>, range_bytes: u64, complete: &mut Complete) {
        self.reads += 1;
        self.read_bytes += range_bytes;
        self.peak_bytes = self.peak_bytes.max(self.bytes());
        for (request, part) in parts {
            let Some(Coming { parts, missing: Some(missing) }) = self.coming.get_mut(&request) else { continue };
            parts.extend(part);
            *missing -= 1;
            if *missing == 0 {
                self.arrive(request, complete);
            }
        }
    }

    fn arrive(&mut self, request: SampleRequest, complete: &mut Complete) {
        let Some(coming) = self.coming.remove(&request) else { return };
        self.held.insert(request, coming.parts.into());
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

    /// Forgets a task that is gone. Gives what was held or coming for it alone, to be dropped without the lock.
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
                freed.coming.extend(self.coming.remove(&request));
            }
        }
        freed
    }

    /// Drops everything that is held and coming; gives it, to be dropped without the lock. Tasks that wait stay.
    pub(super) fn clear(&mut self) -> impl Sized + use<> {
        self.generation += 1;
        self.asked = 0;
        self.asked_by.clear();
        self.announced.clear();
        (std::mem::take(&mut self.held), std::mem::take(&mut self.coming))
    }

    pub(super) fn take_waiting(&mut self) -> BTreeMap<TaskKey, Waiting> {
        std::mem::take(&mut self.waiting)
    }

    /// Samples that are held or coming.
    pub(super) fn samples(&self) -> u64 {
        (self.held.len() + self.coming.len()) as u64
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
        self.ready.first().map(|(need, _)| *need)
    }

    /// Whether a task is needed sooner than all that are ready, and no sample of it is coming. It cannot wait for room: those
    /// that are ready may never be taken before it.
    pub(super) fn is_starved(&self) -> bool {
        self.waiting.first_key_value().is_some_and(|(key, waiting)| {
            !waiting.reads.iter().any(|read| self.is_coming(read.request))
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
