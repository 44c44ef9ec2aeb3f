//! Which bytes a sample needs, how they are fetched from a peer, and how a sample is loaded from them.

use std::fmt::Debug;

use feedline_data::cut::Cut;
use feedline_data::op::WorkHint;
use feedline_data::source::OpenPart;
use feedline_data::store::{Done, Fetch, StoreError};
use feedline_order::SampleRequest;

use super::super::reader::Part;
use super::super::{Loading, LocalSupply, Reading, Supply as _, SupplyError};
use super::range::ReadTarget;
use crate::offload::OffloadReport;

/// Upper limit of requests in flight: for random access, and for long ranges.
const MAX_REQUESTS: usize = 64;
const MAX_LONG_REQUESTS: usize = 8;

/// See the module.
pub(in super::super) trait Needs: Send + Sync + Debug {
    /// Upper limit of requests in flight.
    fn most_requests(&self) -> usize;

    /// How many samples to announce ahead: half of them in flight, half of them here or in preparation.
    fn samples_ahead(&self) -> usize;

    /// The ranges that a sample needs, or why they cannot be located.
    fn needs(&self, request: SampleRequest, reading: Reading) -> Result<Vec<ReadTarget>, StoreError>;

    /// Updates a request just before it is sent.
    fn renew(&self, _target: &mut ReadTarget) {}

    /// Starts to fetch a target.
    fn fetch(&self, target: &ReadTarget, done: Done) -> Fetch;

    /// Loads a sample from parts that were read.
    fn load(&self, parts: &[Part], loading: Loading<'_, '_>) -> Result<Cut, SupplyError>;

    /// Predicts the work of loading a sample.
    fn work_hint(&self, request: SampleRequest) -> WorkHint;

    /// What a storage server near the data does, and why.
    fn offload(&self) -> Option<OffloadReport> {
        None
    }
}

/// Samples in their stored form.
#[derive(Debug)]
pub(in super::super) struct Stored {
    pub local: LocalSupply,
    pub access: Access,
}

/// How stored bytes are read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Access {
    /// Fetches only from peers, in any order. Local files are read when their sample is loaded.
    Peer,
    /// Reads everything, in sequence.
    Sequential,
}

impl Needs for Stored {
    fn most_requests(&self) -> usize {
        if self.access == Access::Peer { MAX_REQUESTS } else { MAX_LONG_REQUESTS }
    }

    fn samples_ahead(&self) -> usize {
        if self.access == Access::Peer { 2 * MAX_REQUESTS } else { 0 }
    }

    fn needs(&self, request: SampleRequest, reading: Reading) -> Result<Vec<ReadTarget>, StoreError> {
        let mut parts = match self.access {
            Access::Peer => self.local.needs(request, reading)?,
            Access::Sequential => sequential_parts(&self.local, request)?,
        };
        parts.retain(|(object, _)| self.access == Access::Sequential || object.remote().is_some());
        Ok(parts.into_iter().map(|(object, range)| ReadTarget::Range { object, range }).collect())
    }

    fn fetch(&self, target: &ReadTarget, done: Done) -> Fetch {
        let ReadTarget::Range { object, range } = target else { unreachable!("only ranges are needed") };
        object.remote().expect("only what is with a peer is fetched").fetch(range.clone(), done)
    }

    fn load(&self, parts: &[Part], loading: Loading<'_, '_>) -> Result<Cut, SupplyError> {
        self.local.load_with(parts, loading)
    }

    fn work_hint(&self, request: SampleRequest) -> WorkHint {
        self.local.work_hint(request)
    }
}

/// The stored bytes of a sample that are read in sequence.
pub(super) fn sequential_parts(local: &LocalSupply, request: SampleRequest) -> Result<Vec<OpenPart>, StoreError> {
    let mut parts = local.needs(request, Reading::Trimmed)?;
    parts.retain(|(object, range)| !range.is_empty() && !object.is_in_memory());
    Ok(parts)
}
