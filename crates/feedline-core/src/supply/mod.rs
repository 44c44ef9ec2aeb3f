//! Supplies: samples at a given cut of the op chain.
//!
//! In: tasks, announced in the order of need. Out: each task once on the [`Ready`] queue, when its samples can be loaded
//! without waiting for a peer; then, in a preparer thread, the samples themselves. A supply of many requests in flight
//! (an object store, a storage server) answers as they complete; the local one answers at once.

mod local;

use std::fmt::Debug;

pub use local::LocalSupply;

use crate::batch::Sample;
use crate::engine::{Task, Workspace};
use crate::metrics::ReadMeter;
use crate::order::SampleId;
use crate::store::StoreError;

/// Gives samples.
pub trait Supply: Send + Sync + Debug {
    /// Announces samples that will be needed; returns at once.
    fn request(&self, tasks: Vec<Task>, ready: &mut dyn Ready);

    /// Loads one sample of a task that is ready; says how many ops of the chain have been done already.
    fn load(
        &self,
        id: SampleId,
        sample: &mut Sample<'_>,
        workspace: &mut Workspace,
        meter: &ReadMeter,
    ) -> Result<Cut, SupplyError>;
}

/// The place in the op chain where work changes hands: ops before it are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut(pub usize);

/// Where a supply puts tasks whose samples can be loaded.
pub trait Ready {
    /// Hands a task to the preparers.
    fn push(&mut self, task: Task);
}

/// Why a sample could not be had.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the causes say it")]
pub enum SupplyError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Output(#[from] crate::batch::OutputError),
    #[error(transparent)]
    Cancelled(#[from] crate::engine::Cancelled),
}
