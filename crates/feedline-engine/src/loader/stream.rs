//! A stream of batches, of a loader's own or shared with other jobs.

use std::sync::Arc;
use std::time::Duration;

use feedline_data::plan::Plan;
use feedline_order::Epoch;
use serde::Serialize;

use super::{Iteration, Loader, Next, SharedLoader};
use crate::error::Error;
use crate::metrics::Snapshot;
use crate::state::{RideState, State, StateError};

/// A stream of batches.
#[derive(Debug)]
pub enum Stream {
    /// Its own.
    Private(Box<Loader>),
    /// One that other jobs get, too.
    Shared(Box<SharedLoader>),
}

/// What a consumer has received.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum StreamState {
    /// Of a stream of its own.
    Private(State),
    /// Of one that is shared.
    Shared(RideState),
}

macro_rules! either {
    ($self:ident, $loader:ident => $call:expr) => {
        match $self {
            Self::Private($loader) => $call,
            Self::Shared($loader) => $call,
        }
    };
}

impl Stream {
    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        either!(self, loader => loader.plan())
    }

    /// See [`Loader::begin`].
    pub fn begin(&self) -> Result<Iteration, Error> {
        either!(self, loader => loader.begin())
    }

    /// See [`Loader::wait_within`].
    pub fn wait_within(&self, iteration: Iteration, timeout: Duration) -> Result<bool, Error> {
        either!(self, loader => loader.wait_within(iteration, timeout))
    }

    /// See [`Loader::take`].
    pub fn take(&self, iteration: Iteration) -> Result<Next, Error> {
        either!(self, loader => loader.take(iteration))
    }

    /// See [`Loader::check`].
    pub fn check(&self, iteration: Iteration) -> Result<(), Error> {
        either!(self, loader => loader.check(iteration))
    }

    /// Frees what an iteration that is left early still holds. What is shared is given back by the next.
    pub fn abandon(&self, iteration: Iteration) {
        if let Self::Private(loader) = self {
            loader.abandon(iteration);
        }
    }

    /// See [`Loader::set_epoch`].
    pub fn set_epoch(&self, epoch: Epoch) -> Result<(), Error> {
        either!(self, loader => loader.set_epoch(epoch))
    }

    /// See [`Loader::upcoming_epoch`].
    pub fn upcoming_epoch(&self) -> Epoch {
        either!(self, loader => loader.upcoming_epoch())
    }

    /// What the consumer has received.
    pub fn state(&self) -> StreamState {
        match self {
            Self::Private(loader) => StreamState::Private(loader.state()),
            Self::Shared(loader) => StreamState::Shared(loader.state()),
        }
    }

    /// Goes on from a state of the same kind.
    pub fn load_state(&self, state: &StreamState) -> Result<(), Error> {
        match (self, state) {
            (Self::Private(loader), StreamState::Private(state)) => loader.load_state(state),
            (Self::Shared(loader), StreamState::Shared(state)) => loader.load_state(state),
            (Self::Private(_), StreamState::Shared(_)) => Err(StateError::Shared.into()),
            (Self::Shared(_), StreamState::Private(_)) => Err(StateError::Private.into()),
        }
    }

    /// See [`Loader::snapshot`].
    pub fn snapshot(&self) -> Snapshot {
        either!(self, loader => loader.snapshot())
    }

    /// The loader, if the stream is its own.
    pub fn private(&self) -> Option<&Loader> {
        match self {
            Self::Private(loader) => Some(loader),
            Self::Shared(_) => None,
        }
    }

    /// See [`Loader::close`].
    pub fn close(&self) {
        either!(self, loader => loader.close());
    }
}
