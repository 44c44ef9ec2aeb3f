//! The error of a stream that cannot continue. It stays until the consumer jumps elsewhere.

use std::sync::Arc;

use feedline_data::batch::RaggedError;
use feedline_data::failure::SampleFailure;
use feedline_data::plan::Plan;
use feedline_order::Epoch;

use crate::error::Error;

/// Why the next batch cannot be delivered. The cursor stays before that batch.
#[derive(Debug)]
pub(crate) enum Stuck {
    Ragged(Box<RaggedError>),
    Failure(Arc<SampleFailure>),
    TooMany { substituted: u64, epoch: Epoch, source: Arc<SampleFailure> },
    OutOfMemory,
    Panicked,
}

impl Stuck {
    /// The error for the consumer. Every call to `next` returns it.
    pub(crate) fn error(&self, plan: &Plan) -> Error {
        match self {
            Self::Ragged(ragged) => Error::Ragged(ragged.clone()),
            Self::Failure(failure) => Error::Sample(Arc::clone(failure)),
            Self::TooMany { substituted, epoch, source } => Error::TooManyFailures {
                replaced: *substituted,
                allowed: plan.substitutes_allowed(),
                epoch: *epoch,
                source: Arc::clone(source),
            },
            Self::OutOfMemory => Error::OutOfMemory { bytes: plan.layout().slab().total_bytes() },
            Self::Panicked => Error::Panicked,
        }
    }
}
