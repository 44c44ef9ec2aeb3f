//! Shared segments from the node of a machine.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use feedline_data::plan::Plan;
use feedline_engine::carousel::BadSlot;
use feedline_engine::error::Error;
use feedline_engine::loader::{Feed, Segment, SegmentMemory};
use feedline_engine::machine::CoreWeight;
use feedline_engine::state::JobProgress;

use super::attached::{AttachError, Attached, Lent};
use super::message::{FromNode, Route, SegmentMessage};

/// A segment holds many batches, so one request at a time suffices.
const AHEAD: u64 = 1;

/// Receives a job's segments from its node.
#[derive(Debug)]
pub struct NodeFeed {
    attached: Attached,
    plan: Arc<Plan>,
}

impl NodeFeed {
    /// Attaches to the node at `socket`, continuing from a job's progress.
    pub fn attach(
        socket: &Path,
        plan: &Arc<Plan>,
        job_progress: &JobProgress,
        weight: CoreWeight,
    ) -> Result<Self, AttachError> {
        let route = Route::JobProgress(job_progress.to_state(plan, plan.segments()));
        let attached = Attached::attach(socket, plan, plan.shared_key().0, route, weight)?;
        Ok(Self { attached, plan: Arc::clone(plan) })
    }
}

impl Feed for NodeFeed {
    fn change(&self, job_progress: &JobProgress) -> Result<(), Error> {
        self.attached.change(Route::JobProgress(job_progress.to_state(&self.plan, self.plan.segments())))
    }

    fn next_within(&self, timeout: Duration) -> Result<Option<Segment>, Error> {
        let Some(Lent { message, view, lease }) = self.attached.next_within(AHEAD, timeout)? else { return Ok(None) };
        let FromNode::Segment(SegmentMessage { epoch, segment_round, skipped, can_be_kept, bad, .. }) = message else {
            return Err(Error::Production { reason: "the node sent something else than a segment".to_owned() });
        };
        let bad: Arc<[BadSlot]> = bad.into_iter().map(BadSlot::from).collect();
        let memory = SegmentMemory::View(view);
        Ok(Some(Segment { epoch, segment_round, skipped, can_be_kept, memory, bad, lease }))
    }
}
