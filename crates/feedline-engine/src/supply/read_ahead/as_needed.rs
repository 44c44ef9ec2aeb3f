//! Fetches from a peer what tasks request, in the order of need.

use std::sync::Arc;

use feedline_data::plan::Plan;

use super::buffer::TaskRequest;
use super::order::{Load, ReadOrder, SampleRead};
use super::range::{Grouping, ReadRange};

/// The order of need.
#[derive(Debug)]
pub(super) struct AsNeeded {
    pub plan: Arc<Plan>,
    /// Upper limit of bytes held and in flight.
    pub limit: u64,
}

impl ReadOrder for AsNeeded {
    fn locate(&self, tasks: &[TaskRequest]) -> Vec<Vec<SampleRead>> {
        let reads = |TaskRequest { task, reading, .. }: &TaskRequest| {
            let (priority, reading) = (task.need().into(), *reading);
            let read = |request| SampleRead { request, reading, priority, step: None };
            task.requests(&self.plan).into_iter().map(read).collect()
        };
        tasks.iter().map(reads).collect()
    }

    fn has_room(&self, range: &ReadRange, load: &Load) -> bool {
        // A range that is needed before everything held may exceed the limit, because nothing else would free memory for it.
        load.bytes.saturating_add(range.target.bytes()) <= self.limit
            || load.soonest.is_none_or(|soonest| soonest >= range.priority)
    }

    fn grouping(&self) -> Grouping {
        Grouping::Random
    }
}
