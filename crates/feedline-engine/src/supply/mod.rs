//! Supplies: samples at a given cut of the op chain.
//!
//! In: tasks, announced in the order of need. Out: each task once to [`Ready`], when its samples can be loaded without
//! waiting for a peer; then, in a preparer thread, the samples themselves. A supply with many requests in flight answers as
//! they complete, from threads of its own; the local one answers at once.

mod choose;
mod counted;
mod indexing;
mod local;
mod near;
mod prefix_cache;
mod read_ahead;
mod reader;
mod seek;
mod task;
mod volumes;

use std::fmt::Debug;
use std::sync::Arc;

use feedline_data::cut::Cut;
use feedline_order::SampleRequest;

pub(crate) use choose::supply_for;
pub use indexing::{Indexed, index_source};
pub use local::LocalSupply;
pub use near::{NearPreparer, NearWorkspace, PrepareError};
use prefix_cache::PrefixCache;
pub use task::Task;

use crate::metrics::{Metrics, ReservoirSnapshot, TrafficMeter};
use crate::offload::OffloadReport;
use feedline_data::batch::{OutputError, Sample};
use feedline_data::memory::{NoMemory, Workspace};
use feedline_data::op::WorkHint;
use feedline_data::store::StoreError;
use feedline_data::volume::VolumeError;

/// Gives samples.
pub trait Supply: Send + Sync + Debug {
    /// Announces samples that will be needed; returns at once. [`Task::wanted`] names them.
    fn request(&self, tasks: Vec<Task>, ready: &Arc<dyn Ready>);

    /// The same for samples that will be loaded whole, to be kept.
    fn request_whole(&self, tasks: Vec<Task>, ready: &Arc<dyn Ready>) {
        self.request(tasks, ready);
    }

    /// Says that tasks were dropped: those that [`Ready::expects`] no more need no answer.
    fn forget(&self) {}

    /// How many samples it should be asked for ahead, because their bytes take their time to come.
    fn samples_ahead(&self) -> usize {
        0
    }

    /// What there is to do until a sample is loaded, as far as that is known before.
    fn work_hint(&self, _wanted: SampleRequest) -> WorkHint {
        WorkHint::Usual
    }

    /// What a peer near the data does, and why, where there is one.
    fn offload(&self) -> Option<OffloadReport> {
        None
    }

    /// What was read in sequence and waits for its turn, where that is how samples are read.
    fn reservoir(&self) -> Option<ReservoirSnapshot> {
        None
    }

    /// Counts what comes over the wire.
    fn traffic(&self) -> Arc<TrafficMeter> {
        Arc::default()
    }

    /// Loads one sample of a task that is ready; says how many ops of the chain have been done already.
    fn load(&self, loading: Loading<'_, '_>) -> Result<Cut, SupplyError>;

    /// Whether the supply wants to have a sample back as it is at some cut, to give it sooner the next time. Asked before
    /// the sample is loaded.
    fn keeps(&self, _wanted: SampleRequest, _metrics: &Metrics) -> Option<Keeping> {
        None
    }

    /// Takes a copy of a sample at the cut that [`Supply::keeps`] gave.
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

/// A sample that is being loaded, and what it is loaded with.
#[derive(Debug)]
pub struct Loading<'a, 's> {
    /// Which sample.
    pub request: SampleRequest,
    /// How much of it.
    pub reading: Reading,
    /// Where its fields go.
    pub sample: &'a mut Sample<'s>,
    /// The tools of the thread.
    pub workspace: &'a mut Workspace,
    /// Counts what is read.
    pub metrics: &'a Metrics,
}

impl<'s> Loading<'_, 's> {
    /// The same sample, loaded by another supply that may fail, so that it can be loaded again.
    fn attempt(&mut self) -> Loading<'_, 's> {
        let Self { request, reading, ref mut sample, ref mut workspace, metrics } = *self;
        Loading { request, reading, sample, workspace, metrics }
    }
}

/// That a sample is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// The place in the chain.
    pub cut: Cut,
    /// What it is made from.
    pub stamp: u64,
}

/// How much of a sample is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// What the ops need.
    Trimmed,
    /// All of it, with what says where its parts are.
    Complete,
    /// All of it and nothing else: what says where its parts are turned out wrong, or is not needed.
    Plain,
}

/// Where a supply puts tasks whose samples can be loaded. Tasks that nobody needs any more are dropped there.
pub trait Ready: Send + Sync {
    /// Hands tasks to the preparers, in any order: a preparer whose sample is not due waits for memory for a moment only.
    fn ready(&self, tasks: Vec<Task>);

    /// Whether a task may still be needed.
    fn expects(&self, _task: &Task) -> bool {
        true
    }
}

/// Why a sample could not be had.
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
    /// Why there was no memory, if that was the reason.
    pub fn no_memory(&self) -> Option<NoMemory> {
        match self {
            Self::Store(StoreError::Memory(memory)) | Self::Output(OutputError::Memory(memory)) => Some(*memory),
            Self::Volume(volume) => volume.no_memory(),
            _ => None,
        }
    }
}
