//! A machine near the data, as the engine sees it.

use std::fmt::Debug;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Form, Wanted};
use crate::plan::Prefix;
use crate::store::{Fetch, StoreError, Traffic};

/// Prepares samples near the data.
pub trait Peer: Send + Sync + Debug {
    /// Begins to ask for something and returns at once. `done` is called once, from another thread or before this returns,
    /// unless the [`Fetch`] was dropped before.
    fn ask(&self, prefix: &Arc<Prefix>, asked: Asked, done: Box<dyn FnOnce(Prepared) + Send>) -> Fetch;

    /// Whether it has said that it prepares nothing of a prefix.
    fn refuses(&self, _prefix: &Prefix) -> bool {
        false
    }

    /// Bytes a second that come while the link is busy, once enough have.
    fn bytes_per_second(&self) -> Option<f64>;
}

/// What a peer is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asked {
    /// A sample.
    Sample {
        /// Which.
        wanted: Wanted,
        /// How.
        form: Form,
    },
    /// What a sample would take in all forms, without the sample.
    Trials {
        /// Which.
        wanted: Wanted,
    },
}

/// What became of it.
#[derive(Debug)]
pub struct Prepared {
    /// The sample as a record, packed as the form says; or why not.
    pub sample: Result<(Vec<u8>, Spent), StoreError>,
    /// What went over the wire for it.
    pub traffic: Traffic,
}

/// What a peer spent on an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// The form of what it sends: not packed where that does not pay.
    pub form: Form,
    /// Processor time.
    pub nanoseconds: u64,
    /// Bytes of the sample as it is stored.
    pub stored_bytes: u64,
    /// Cores that the peer has for whoever asked, others considered.
    pub cores: f32,
    /// Bytes a second that went to whoever asked while something was sent, as the peer sees it.
    pub bytes_per_second: Option<f64>,
    /// What was asked for, if that was how other forms would be.
    pub trials: Vec<Trial>,
}

/// What a form would take for a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The form.
    pub form: Form,
    /// Bytes to send.
    pub bytes: u64,
    /// Processor time of the peer.
    pub nanoseconds: u64,
}
