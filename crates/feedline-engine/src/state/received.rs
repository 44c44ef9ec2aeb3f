//! What a consumer has received, whichever kind of stream it has.

use std::sync::Arc;

use feedline_data::plan::Plan;
use feedline_order::Epoch;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use super::{Cursor, JobProgress, JobProgressState, State, StateError};

/// A place in a stream.
#[derive(Clone, Debug)]
pub enum Received {
    /// In a stream of one's own.
    Stream(Cursor),
    /// In segments that other jobs get too.
    JobProgress(SharedJobProgress),
}

/// A saved place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SavedState {
    /// In a stream of one's own.
    Stream(State),
    /// In segments that other jobs get too.
    JobProgress(JobProgressState),
}

impl Received {
    /// Nothing of a stream of one's own.
    pub fn nothing() -> Self {
        Self::Stream(Cursor::default())
    }

    /// Nothing of the segments of `plan`.
    pub(crate) fn nothing_shared(plan: &Plan) -> Self {
        Self::from(JobProgress::new(plan.segments()))
    }

    /// The epoch under way.
    pub fn epoch(&self) -> Epoch {
        match self {
            Self::Stream(cursor) => cursor.epoch,
            Self::JobProgress(job_progress) => job_progress.lock().epoch,
        }
    }

    /// Goes to the beginning of an epoch.
    pub fn jump(&mut self, epoch: Epoch) {
        match self {
            Self::Stream(cursor) => *cursor = Cursor::start_of(epoch),
            Self::JobProgress(job_progress) => job_progress.lock().jump(epoch),
        }
    }

    /// The place as it is saved.
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
            (Self::JobProgress(_), SavedState::JobProgress(state)) => Ok(state.to_ride(plan, plan.segments())?.into()),
            (Self::Stream(_), SavedState::JobProgress(_)) => Err(StateError::Shared),
            (Self::JobProgress(_), SavedState::Stream(_)) => Err(StateError::Private),
        }
    }

    /// The cursor of a stream of one's own.
    pub fn cursor(&self) -> &Cursor {
        match self {
            Self::Stream(cursor) => cursor,
            Self::JobProgress(_) => {
                unreachable!("a run is given to loaders with a stream of their own: see Loader::shared")
            }
        }
    }

    /// The way through segments.
    pub fn job_progress(&self) -> &SharedJobProgress {
        match self {
            Self::JobProgress(job_progress) => job_progress,
            Self::Stream(_) => unreachable!("segments are given to loaders that share: see Loader::shared"),
        }
    }
}

impl SavedState {
    /// The place in a stream of one's own, if it is one.
    pub fn stream(&self) -> Option<&State> {
        match self {
            Self::Stream(state) => Some(state),
            Self::JobProgress(_) => None,
        }
    }

    /// The place in segments that other jobs get too, if it is one.
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

/// The way of a job through segments. Shared with the deliverer that cuts batches out of them: it has a number for each segment, so
/// it is not copied with each batch.
#[derive(Clone, Debug)]
pub struct SharedJobProgress(Arc<Mutex<JobProgress>>);

impl SharedJobProgress {
    /// Locks it, to look at or to change.
    pub fn lock(&self) -> MutexGuard<'_, JobProgress> {
        self.0.lock()
    }
}
