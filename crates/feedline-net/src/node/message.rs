//! The messages between jobs and a node.

use std::sync::Arc;

use feedline_data::failure::{SampleFailure, chain};
use feedline_data::plan::Plan;
use feedline_engine::carousel::BadSlot;
use feedline_engine::machine::CoreWeight;
use feedline_engine::metrics::Substitute;
use feedline_engine::state::{Cursor, JobProgressState, SegmentRound};
use feedline_order::{Epoch, Position, Rank, SampleId};
use serde::{Deserialize, Serialize};

/// The version of this protocol. Both sides must have the same.
pub(super) const PROTOCOL: u32 = 5;

/// A message of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum FromJob {
    /// The first message: the job, and what it requests.
    Attach {
        /// The version of the protocol.
        protocol: u32,
        /// The versions of engine and decoders. Other versions might produce other samples.
        engine: String,
        /// Its plan.
        plan: JobPlan,
        /// Identifies jobs that are served together.
        key: u128,
        /// Segments or a rank's batches, and where it continues.
        route: Route,
    },
    /// Instead of attaching: a request for the node's metrics.
    GetStats {
        /// The version of the protocol.
        protocol: u32,
    },
    /// The job jumped. It ignores everything with an older generation.
    Change {
        /// The number of jumps so far.
        generation: u64,
        /// Where it continues.
        route: Route,
    },
    /// It requests the next segment or batch.
    Next,
    /// It has read the oldest segment or batch message from its connection.
    Received,
    /// It returns a segment or batch.
    GiveBack {
        /// Its number at the node.
        number: u64,
    },
}

/// The plan of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct JobPlan {
    /// The plan as TOML. It is the same for all ranks.
    pub text: String,
    /// The job's rank among the processes that share an epoch.
    pub rank: Rank,
    /// The weight of the job where the cores do not suffice for all jobs.
    pub weight: CoreWeight,
}

/// How a job reads the data, and where it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Route {
    /// All of it, segment by segment, beside other jobs.
    JobProgress(JobProgressState),
    /// The share of its rank, batch by batch, in the order of its plan. The state is JSON.
    Share(String),
}

impl Route {
    /// The share of a rank, from `cursor` on.
    pub(super) fn share(cursor: &Cursor, plan: &Plan) -> Self {
        Self::Share(serde_json::to_string(&cursor.to_state(plan)).expect("a state is plain data"))
    }
}

/// A message of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum FromNode {
    /// The job is attached.
    Attached,
    /// The job cannot be served.
    Refused {
        /// Why.
        reason: String,
    },
    /// The node's metrics as JSON.
    Stats {
        /// A document.
        json: String,
    },
    /// The next segment. The descriptor of its memory comes with it.
    Segment(SegmentMessage),
    /// The next batch of a rank's share. The descriptor of its memory comes with it.
    Batch(BatchMessage),
    /// Samples can no longer be produced.
    Failed {
        /// Why.
        reason: String,
    },
    /// A sign of life.
    Alive,
}

/// A segment in shared memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SegmentMessage {
    pub generation: u64,
    pub number: u64,
    pub epoch: Epoch,
    pub segment_round: SegmentRound,
    pub skipped: u64,
    pub can_be_kept: bool,
    /// Bytes of its memory.
    pub bytes: u64,
    pub bad: Vec<BadMessage>,
}

/// A batch in shared memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct BatchMessage {
    pub generation: u64,
    pub number: u64,
    pub samples: u64,
    /// Bytes of its memory.
    pub bytes: u64,
    /// The names of its samples, if the job wants them.
    pub keys: Vec<String>,
    pub bad: Vec<BadMessage>,
}

/// A slot with a substitute in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BadMessage {
    pub slot: u64,
    pub id: u64,
    pub key: String,
    pub path: Option<String>,
    pub range: Option<std::ops::Range<u64>>,
    pub round: u64,
    pub position: u64,
    pub op: Option<String>,
    pub cause: String,
    pub by: String,
}

impl From<&BadSlot> for BadMessage {
    fn from(bad: &BadSlot) -> Self {
        let failure = &bad.substitute.failure;
        Self {
            slot: bad.slot as u64,
            id: failure.id.0,
            key: failure.key.clone(),
            path: failure.path.clone(),
            range: failure.range.clone(),
            // Named after carousels, where the epoch of a failure is the round of its segment.
            round: failure.epoch.0,
            position: failure.position.0,
            op: failure.op.as_ref().map(ToString::to_string),
            cause: chain(&*failure.cause),
            by: bad.substitute.by.clone(),
        }
    }
}

/// The cause of a failure as text. The node sends no typed errors.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct RemoteCause(String);

impl From<BadMessage> for BadSlot {
    fn from(bad: BadMessage) -> Self {
        let failure = SampleFailure {
            id: SampleId(bad.id),
            key: bad.key,
            path: bad.path,
            range: bad.range,
            epoch: Epoch(bad.round),
            position: Position(bad.position),
            op: bad.op.map(Into::into),
            cause: Arc::new(RemoteCause(bad.cause)),
        };
        let substitute = Substitute { failure: Arc::new(failure), by: bad.by };
        Self { slot: usize::try_from(bad.slot).unwrap_or(usize::MAX), substitute }
    }
}
