//! What a consumer has received, in either kind of stream.

use std::sync::Arc;

use feedline_data::plan::Plan;
use feedline_memory::{Mutex, MutexGuard};
use feedline_order::Epoch;
use serde::{Deserialize, Serialize};

use super::{Cursor, JobProgress, JobProgressState, State, StateError};

/// A place in a stream.
#[derive(Clone, Debug)]
pub enum Received {
    /// In a private stream.
    Stream(Cursor),
    /// In shared segments.
    JobProgress(SharedJobProgress),
}

/// A saved place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SavedState {
    /// In a private stream.
    Stream(State),
    /// In shared segments.
    JobProgress(JobProgressState),
}

impl Received {
    /// The start of a private stream.
    pub fn nothing() -> Self {
        Self::Stream(Cursor::default())
    }

    /// The start of the shared segments of `plan`.
    pub(crate) fn nothing_shared(plan: &Plan) -> Self {
        Self::from(JobProgress::new(plan.segments()))
    }

    /// The current epoch.
    pub fn epoch(&self) -> Epoch {
        match self {
            Self::Stream(cursor) => cursor.epoch,
            Self::JobProgress(job_progress) => job_progress.lock().epoch,
        }
    }

    /// Jumps to the start of an epoch.
    pub fn jump(&mut self, epoch: Epoch) {
        match self {
            Self::Stream(cursor) => *cursor = Cursor::start_of(epoch),
            Self::JobProgress(job_progress) => job_progress.lock().jump(epoch),
        }
    }

    /// The saved form of this place.
    pub fn to_state(&self, plan: &Plan) -> SavedState {
        match self {
            Self::Stream(cursor) => SavedState::Stream(cursor.to_state(plan)),
            Self::JobProgress(job_progress) => {
                SavedState::JobProgress(job_progress.lock().to_state(plan, plan.segments()))
            }
        }
    }

    /// The place that a state of the same kind describes.
    pub fn loaded(&self, state: &SavedState, plan: &Plan) -> Result<Self, StateError> {
        match (self, state) {
            (Self::Stream(_), SavedState::Stream(state)) => Ok(Self::Stream(state.to_cursor(plan)?)),
            (Self::JobProgress(_), SavedState::JobProgress(state)) => {
                Ok(state.to_job_progress(plan, plan.segments())?.into())
            }
            (Self::Stream(_), SavedState::JobProgress(_)) => Err(StateError::Shared),
            (Self::JobProgress(_), SavedState::Stream(_)) => Err(StateError::Private),
        }
    }

    /// The cursor of a private stream.
    pub fn cursor(&self) -> &Cursor {
        match self {
            Self::Stream(cursor) => cursor,
            Self::JobProgress(_) => {
                unreachable!("a run is given to loaders with a stream of their own: see Loader::shared")
            }
        }
    }

    /// The progress through shared segments.
    pub fn job_progress(&self) -> &SharedJobProgress {
        match self {
            Self::JobProgress(job_progress) => job_progress,
            Self::Stream(_) => unreachable!("segments are given to loaders that share: see Loader::shared"),
        }
    }
}

impl SavedState {
    /// The state of a private stream, if it is one.
    pub fn stream(&self) -> Option<&State> {
        match self {
            Self::Stream(state) => Some(state),
            Self::JobProgress(_) => None,
        }
    }

    /// The state of shared segments, if it is one.
    pub fn job_progress(&self) -> Option<&JobProgressState> {
        match self {
            Self::JobProgress(state) => Some(state),
            Self::Stream(_) => None,
        }
    }
}

impl From<State> for SavedState {
    fn from(state: State) -> Self {
        Self::Stream(state)
    }
}

impl From<JobProgress> for Received {
    fn from(job_progress: JobProgress) -> Self {
        Self::JobProgress(SharedJobProgress(Arc::new(Mutex::new(job_progress))))
    }
}

/// The progress of a job through shared segments. The loader and the deliverer share it, because copying its numbers for each
/// segment with every batch would be slow.
#[derive(Clone, Debug)]
pub struct SharedJobProgress(Arc<Mutex<JobProgress>>);

impl SharedJobProgress {
    /// Locks the progress.
    pub fn lock(&self) -> MutexGuard<'_, JobProgress> {
        self.0.lock()
    }
}
