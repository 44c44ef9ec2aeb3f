//! Reads the samples of segments from a disk in storage order, whatever their order in the segment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_data::plan::Plan;
use feedline_order::{Epoch, Occurrence, Ordinal, SampleRequest, Segments};

use super::super::{LocalSupply, Reading};
use super::buffer::TaskRequest;
use super::needs::sequential_parts;
use super::order::{Load, ReadOrder, ReadPriority, SampleRead};
use super::range::{Grouping, ReadRange};

/// Upper limit of stored bytes that wait for threads.
const MAX_BYTES: u64 = 128 << 20;

/// Whether the samples of a plan are read in this order: segments of neighbouring samples, on a disk. From a peer many samples are
/// fetched at once, in any order.
pub(super) fn is_in_segments(plan: &Plan, local: &LocalSupply) -> bool {
    let source = plan.source();
    let is_on_disk = || {
        let first = SampleRequest { id: source.id_at(Ordinal(0)), epoch: Epoch(0), occurrence: Occurrence(0) };
        let parts = sequential_parts(local, first).unwrap_or_default();
        parts.iter().all(|(object, _)| object.remote().is_none())
    };
    plan.sequence().segments().is_some_and(Segments::are_of_blocks) && !source.is_empty() && is_on_disk()
}

/// Storage order within each request.
#[derive(Debug)]
pub(super) struct SegmentOrder {
    pub plan: Arc<Plan>,
    pub requests: AtomicU64,
}

impl ReadOrder for SegmentOrder {
    fn locate(&self, tasks: &[TaskRequest]) -> Vec<Vec<SampleRead>> {
        let round = self.requests.fetch_add(1, Ordering::Relaxed);
        let source = self.plan.source();
        let read = |request: SampleRequest| {
            let priority = ReadPriority { round, place: source.ordinal_of(request.id).unwrap_or_default().0 };
            SampleRead { request, reading: Reading::Trimmed, priority, step: None }
        };
        tasks
            .iter()
            .map(|task_request| task_request.task.requests(&self.plan).into_iter().map(read).collect())
            .collect()
    }

    /// Beyond the limit nothing is read while threads have work (law 5).
    fn has_room(&self, _range: &ReadRange, load: &Load) -> bool {
        // With nothing held or in flight, a range may exceed the limit. Otherwise a large sample would wait for ever.
        load.bytes < MAX_BYTES || load.soonest.is_none()
    }

    fn grouping(&self) -> Grouping {
        Grouping::Sequential
    }

    fn shown_size(&self) -> Option<u64> {
        Some(0)
    }
}
