//! Supplies: samples at a given cut of the op chain.
//!
//! In: tasks, announced in the order of need. Out: each task once to [`Ready`], when its samples can be loaded without waiting for
//! a peer; then, in a preparer thread, the samples. A supply with many requests in flight answers from threads of its own, as
//! requests complete. The local supply answers at once.

mod choose;
mod cold_files;
mod counted;
mod indexing;
mod local;
mod making;
mod near;
mod prefix_cache;
mod read_ahead;
mod reader;
mod rows;
mod seek;
mod task;
mod volumes;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use feedline_data::cut::Cut;
use feedline_memory::SlotWriter;
use feedline_order::{Place, SampleRequest};

pub(crate) use choose::supply_for;
pub use indexing::{Indexed, index_source};
pub use local::LocalSupply;
pub use making::{
    LeafForm, LeafSlots, Made, MadeContent, MadeSamples, MakeError, MakeRequest, Making, MakingSupply, SampleMaker,
};
pub use near::{NearPreparer, NearWorkspace, PrepareError};
use prefix_cache::PrefixCache;
pub use task::{GivenBatch, Task};

use crate::metrics::{Metrics, ReservoirSnapshot, TrafficMeter};
use crate::offload::OffloadReport;
use feedline_data::batch::{BatchLayout, OutputError, Sample};
use feedline_data::memory::{NoMemory, Workspace};
use feedline_data::op::WorkHint;
use feedline_data::store::StoreError;
use feedline_data::volume::VolumeError;

/// Provides samples to preparer threads.
pub trait Supply: Send + Sync + Debug {
    /// Announces tasks whose samples will be needed. Returns at once.
    fn request(&self, tasks: Vec<Task>, ready: &Arc<dyn Ready>);

    /// Announces tasks whose samples will be loaded whole, because they will be cached.
    fn request_whole(&self, tasks: Vec<Task>, ready: &Arc<dyn Ready>) {
        self.request(tasks, ready);
    }

    /// Announces that tasks were dropped. Tasks that [`Ready::expects`] rejects need no answer.
    fn forget(&self) {}

    /// How many samples to announce ahead, because their bytes take time to arrive.
    fn samples_ahead(&self) -> usize {
        0
    }

    /// How long a task should take, so that handing it over costs little compared to it.
    fn task_time(&self) -> Duration {
        Duration::from_micros(100)
    }

    /// Predicts the work of loading a sample.
    fn work_hint(&self, _wanted: SampleRequest) -> WorkHint {
        WorkHint::Usual
    }

    /// What a storage server near the data does, and why, if there is one.
    fn offload(&self) -> Option<OffloadReport> {
        None
    }

    /// The samples that were read in sequence and wait for their turn, if the plan reads that way.
    fn reservoir(&self) -> Option<ReservoirSnapshot> {
        None
    }

    /// The network traffic of this supply.
    fn traffic(&self) -> Arc<TrafficMeter> {
        Arc::default()
    }

    /// The layout of batches that are opened from now on, if it differs from the plan's.
    fn layout(&self) -> Option<Arc<BatchLayout>> {
        None
    }

    /// Whether samples are made by [`Supply::make`], all of a task together, instead of loaded one by one.
    fn makes_samples(&self) -> bool {
        false
    }

    /// Whether [`Supply::fill_rows`] fills the slots of a task at once.
    fn fills_rows(&self) -> bool {
        false
    }

    /// Fills slots with samples, from slot `first` on. It cannot fail.
    fn fill_rows(&self, samples: &[(Place, SampleRequest)], first: usize, _writer: &mut SlotWriter) {
        unreachable!("this supply loads samples one by one: {samples:?} in slot {first}")
    }

    /// Makes samples of a task. Fewer come back if the last one failed.
    fn make(&self, making: Making<'_>) -> Result<Vec<Made>, MakeError> {
        unreachable!("this supply loads samples: {making:?}")
    }

    /// Loads one sample of a ready task. Returns the cut: how many ops of the chain are already applied.
    fn load(&self, loading: Loading<'_, '_>) -> Result<Cut, SupplyError>;

    /// Whether the supply wants to cache this sample, and at which cut. Called before the sample is loaded.
    fn keeps(&self, _wanted: SampleRequest, _metrics: &Metrics) -> Option<Keeping> {
        None
    }

    /// Stores a copy of a sample at the cut that [`Supply::keeps`] returned.
    fn keep(
        &self,
        _keeping: Keeping,
        _wanted: SampleRequest,
        _sample: &Sample<'_>,
        _workspace: &mut Workspace,
        _metrics: &Metrics,
    ) {
    }
}

/// A sample to load, and everything needed for it.
#[derive(Debug)]
pub struct Loading<'a, 's> {
    /// Which sample.
    pub request: SampleRequest,
    /// How much of the sample to load.
    pub reading: Reading,
    /// The fields to fill.
    pub sample: &'a mut Sample<'s>,
    /// The workspace of the thread.
    pub workspace: &'a mut Workspace,
    /// Counts the bytes read.
    pub metrics: &'a Metrics,
}

impl<'s> Loading<'_, 's> {
    /// The same request for an attempt that may fail, so that it can be repeated.
    fn attempt(&mut self) -> Loading<'_, 's> {
        let Self { request, reading, ref mut sample, ref mut workspace, metrics } = *self;
        Loading { request, reading, sample, workspace, metrics }
    }
}

/// A sample that is to be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// The cut at which it is cached.
    pub cut: Cut,
    /// The stamp of the files it is made from.
    pub stamp: u64,
}

/// How much of a sample is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Only what the ops need.
    Trimmed,
    /// The whole sample, and its seek index.
    Complete,
    /// The whole sample without its seek index, because the index was wrong or is not needed.
    Plain,
}

/// Receives tasks whose samples can be loaded. Drops tasks that are no longer needed.
pub trait Ready: Send + Sync {
    /// Hands tasks to the preparers. The order does not matter: a preparer whose sample is not due waits for memory only briefly.
    fn ready(&self, tasks: Vec<Task>);

    /// Whether a task may still be needed.
    fn expects(&self, _task: &Task) -> bool {
        true
    }
}

/// Why a sample could not be loaded.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the causes say it")]
pub enum SupplyError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Volume(#[from] VolumeError),
}

impl SupplyError {
    /// The memory error, if that was the cause.
    pub fn no_memory(&self) -> Option<NoMemory> {
        match self {
            Self::Store(StoreError::Memory(memory)) | Self::Output(OutputError::Memory(memory)) => Some(*memory),
            Self::Volume(volume) => volume.no_memory(),
            _ => None,
        }
    }
}
