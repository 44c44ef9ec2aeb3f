//! Why a stream does not move: the error that stays until somebody jumps elsewhere.

use std::sync::Arc;

use feedline_data::batch::RaggedError;
use feedline_data::failure::SampleFailure;
use feedline_data::plan::Plan;
use feedline_order::Epoch;

use crate::error::Error;

/// Why the next batch cannot be delivered: the stream stays before it.
#[derive(Debug)]
pub(crate) enum Stuck {
    Ragged(Box<RaggedError>),
    Failure(Arc<SampleFailure>),
    TooMany { replaced: u64, epoch: Epoch, source: Arc<SampleFailure> },
    OutOfMemory,
    Panicked,
}

impl Stuck {
    /// The error as the consumer gets it, each time it asks.
    pub(crate) fn error(&self, plan: &Plan) -> Error {
        match self {
            Self::Ragged(ragged) => Error::Ragged(ragged.clone()),
            Self::Failure(failure) => Error::Sample(Arc::clone(failure)),
            Self::TooMany { replaced, epoch, source } => Error::TooManyFailures {
                replaced: *replaced,
                allowed: plan.substitutes_allowed(),
                epoch: *epoch,
                source: Arc::clone(source),
            },
            Self::OutOfMemory => Error::OutOfMemory { bytes: plan.layout().slab().total_bytes() },
            Self::Panicked => Error::Panicked,
        }
    }
}
