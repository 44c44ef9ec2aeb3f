//! An open object that adds the bytes it fetches from a peer to the traffic of an epoch.

use std::ops::Range;
use std::sync::Arc;

use feedline_data::memory::Cancel;
use feedline_data::store::{Object, Remote, StoreError, read_waiting};
use feedline_order::Epoch;

use crate::metrics::TrafficMeter;

#[derive(Debug)]
struct CountingObject {
    object: Arc<dyn Object>,
    epoch: Epoch,
    traffic: Arc<TrafficMeter>,
    cancel: Cancel,
}

/// Wraps an object so that its traffic is counted.
pub(super) fn counted(
    object: Arc<dyn Object>,
    epoch: Epoch,
    traffic: &Arc<TrafficMeter>,
    cancel: &Cancel,
) -> Arc<dyn Object> {
    if object.remote().is_none() {
        return object;
    }
    Arc::new(CountingObject { object, epoch, traffic: Arc::clone(traffic), cancel: cancel.clone() })
}

#[deny(clippy::missing_trait_methods)]
impl Object for CountingObject {
    fn is_empty(&self) -> bool {
        self.object.is_empty()
    }

    fn is_in_memory(&self) -> bool {
        self.object.is_in_memory()
    }

    fn will_need(&self, range: Range<u64>) -> bool {
        self.object.will_need(range)
    }

    fn len(&self) -> u64 {
        self.object.len()
    }

    fn address(&self) -> String {
        self.object.address()
    }

    fn modified_nanoseconds(&self) -> Option<i64> {
        self.object.modified_nanoseconds()
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), StoreError> {
        let Some(remote) = self.object.remote() else { return self.object.read_at(offset, target) };
        read_waiting(remote, offset, target, &self.cancel, |traffic| self.traffic.add(self.epoch, traffic))
    }

    fn remote(&self) -> Option<&dyn Remote> {
        self.object.remote()
    }
}
