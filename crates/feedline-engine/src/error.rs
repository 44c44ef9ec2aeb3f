//! Errors of a running plan.

use std::error::Error as StdError;
use std::sync::Arc;

use feedline_data::batch::RaggedError;
use feedline_data::failure::SampleFailure;
use feedline_data::plan::PlanError;
use feedline_order::Epoch;

use crate::state::StateError;

/// Why there is no next batch.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum Error {
    #[error(transparent)]
    Sample(#[from] Arc<SampleFailure>),
    #[error("{replaced} bad samples in epoch {}, but at most {allowed} may be replaced", epoch.0)]
    TooManyFailures { replaced: u64, allowed: u64, epoch: Epoch, source: Arc<SampleFailure> },
    #[error(transparent)]
    Ragged(#[from] Box<RaggedError>),
    #[error("the loader is closed")]
    Closed,
    #[error("a newer iterator of this loader has taken over; one loader has one stream")]
    Superseded,
    #[error(transparent)]
    State(#[from] StateError),
    #[error("the system has no {bytes} bytes left for a batch; lower batch_size or prefetch_batches")]
    OutOfMemory { bytes: usize },
    #[error(
        "the system has no {bytes} bytes left for a segment of samples; free memory, or start the node with less memory"
    )]
    NoSegment { bytes: usize },
    #[error("a preparer thread panicked, which is a bug; please report it")]
    Panicked,
    #[error("samples of this plan cannot be produced for several jobs")]
    Unproducible(#[source] Box<PlanError>),
    #[error("segments need at least {needs} bytes of shared memory, but {has} are allowed; give the node more memory")]
    SharedMemory { needs: u64, has: u64 },
    #[error(
        "other jobs hold all {segments} segments of {bytes} bytes that the node has room for; give the node more memory"
    )]
    NodeFull { segments: usize, bytes: u64 },
    #[error(transparent)]
    Carousel(Arc<Self>),
    #[error("samples cannot be produced any more: {reason}")]
    Production { reason: String },
    #[error("this job cannot attach to a node: {reason}")]
    Attach { reason: String },
    #[error("the node at {socket:?} is gone: {reason}")]
    Node { socket: String, reason: String },
    #[error("cannot write the arrival log {path:?}")]
    ArrivalLog { path: String, source: std::io::Error },
    #[error("batch {number} of epoch {} could not be mapped", epoch.0)]
    Batch { number: u64, epoch: Epoch, source: Arc<dyn StdError + Send + Sync> },
    #[error("cannot start a preparer thread")]
    Thread(#[source] std::io::Error),
}
