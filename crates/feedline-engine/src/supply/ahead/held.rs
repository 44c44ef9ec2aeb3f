//! What was fetched and is not used up: found by the sample, freed with its task.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use feedline_order::SampleRequest;

use super::super::reader::Part;

/// Fetched parts by sample.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<HashMap<SampleRequest, Vec<Share>>>);

/// What one task has for a sample; padding may make two tasks want the same.
#[derive(Debug)]
struct Share {
    task: u64,
    parts: Arc<[Part]>,
}

impl Held {
    /// Keeps the parts of a task.
    pub fn put(&self, task: u64, wanted: &[SampleRequest], parts: &Arc<[Part]>) {
        let mut held = self.lock();
        for wanted in wanted {
            held.entry(*wanted).or_default().push(Share { task, parts: Arc::clone(parts) });
        }
    }

    /// The parts of a sample.
    pub fn parts_of(&self, wanted: SampleRequest) -> Arc<[Part]> {
        let held = self.lock();
        held.get(&wanted).and_then(|shares| shares.first()).map_or_else(Arc::default, |share| Arc::clone(&share.parts))
    }

    /// Forgets the parts of a task.
    pub fn remove(&self, task: u64, wanted: &[SampleRequest]) {
        let mut removed = Vec::new();
        let mut held = self.lock();
        for wanted in wanted {
            if let Some(shares) = held.get_mut(wanted) {
                removed.extend(shares.extract_if(.., |share| share.task == task));
                if shares.is_empty() {
                    held.remove(wanted);
                }
            }
        }
        // Their memory is freed without the lock.
        drop(held);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SampleRequest, Vec<Share>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
