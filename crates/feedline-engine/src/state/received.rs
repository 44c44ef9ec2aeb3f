//! What a consumer has received, whichever kind of stream it has.

use std::sync::Arc;

use feedline_data::plan::Plan;
use feedline_order::Epoch;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use super::{Cursor, Ride, RideState, State, StateError};

/// A place in a stream.
#[derive(Clone, Debug)]
pub enum Received {
    /// In a stream of one's own.
    Stream(Cursor),
    /// In segments that other jobs get too.
    Ride(SharedRide),
}

/// A saved place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SavedState {
    /// In a stream of one's own.
    Stream(State),
    /// In segments that other jobs get too.
    Ride(RideState),
}

impl Received {
    /// Nothing of a stream of one's own.
    pub fn nothing() -> Self {
        Self::Stream(Cursor::default())
    }

    /// Nothing of the segments of `plan`.
    pub(crate) fn nothing_shared(plan: &Plan) -> Self {
        Self::from(Ride::new(plan.segments()))
    }

    /// The epoch under way.
    pub fn epoch(&self) -> Epoch {
        match self {
            Self::Stream(cursor) => cursor.epoch,
            Self::Ride(ride) => ride.lock().epoch,
        }
    }

    /// Goes to the beginning of an epoch.
    pub fn jump(&mut self, epoch: Epoch) {
        match self {
            Self::Stream(cursor) => *cursor = Cursor::start_of(epoch),
            Self::Ride(ride) => ride.lock().jump(epoch),
        }
    }

    /// The place as it is saved.
    pub fn to_state(&self, plan: &Plan) -> SavedState {
        match self {
            Self::Stream(cursor) => SavedState::Stream(cursor.to_state(plan)),
            Self::Ride(ride) => SavedState::Ride(ride.lock().to_state(plan, plan.segments())),
        }
    }

    /// The place that a state of the same kind describes.
    pub fn loaded(&self, state: &SavedState, plan: &Plan) -> Result<Self, StateError> {
        match (self, state) {
            (Self::Stream(_), SavedState::Stream(state)) => Ok(Self::Stream(state.to_cursor(plan)?)),
            (Self::Ride(_), SavedState::Ride(state)) => Ok(state.to_ride(plan, plan.segments())?.into()),
            (Self::Stream(_), SavedState::Ride(_)) => Err(StateError::Shared),
            (Self::Ride(_), SavedState::Stream(_)) => Err(StateError::Private),
        }
    }

    /// The cursor of a stream of one's own.
    pub fn cursor(&self) -> &Cursor {
        match self {
            Self::Stream(cursor) => cursor,
            Self::Ride(_) => unreachable!("a run is given to loaders with a stream of their own: see Loader::shared"),
        }
    }

    /// The way through segments.
    pub fn ride(&self) -> &SharedRide {
        match self {
            Self::Ride(ride) => ride,
            Self::Stream(_) => unreachable!("segments are given to loaders that share: see Loader::shared"),
        }
    }
}

impl SavedState {
    /// The place in a stream of one's own, if it is one.
    pub fn stream(&self) -> Option<&State> {
        match self {
            Self::Stream(state) => Some(state),
            Self::Ride(_) => None,
        }
    }

    /// The place in segments that other jobs get too, if it is one.
    pub fn ride(&self) -> Option<&RideState> {
        match self {
            Self::Ride(state) => Some(state),
            Self::Stream(_) => None,
        }
    }
}

impl From<State> for SavedState {
    fn from(state: State) -> Self {
        Self::Stream(state)
    }
}

impl From<Ride> for Received {
    fn from(ride: Ride) -> Self {
        Self::Ride(SharedRide(Arc::new(Mutex::new(ride))))
    }
}

/// The way of a job through segments. Shared with the deliverer that cuts batches out of them: it has a number for each segment, so
/// it is not copied with each batch.
#[derive(Clone, Debug)]
pub struct SharedRide(Arc<Mutex<Ride>>);

impl SharedRide {
    /// Locks it, to look at or to change.
    pub fn lock(&self) -> MutexGuard<'_, Ride> {
        self.0.lock()
    }
}
