//! A machine near the data, as the engine sees it.

use std::fmt::Debug;
use std::sync::Arc;

use feedline_order::SampleRequest;
use serde::{Deserialize, Serialize};

use super::{Fetch, Form, Prefix, StoreError, Traffic, Version};

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
        wanted: SampleRequest,
        /// How.
        form: Form,
        /// The files that it is stored in, by field, as they were when they were listed. A sample of others is not made.
        stored: Vec<(String, Version)>,
    },
    /// What a sample would take in all forms, without the sample.
    Trials {
        /// Which.
        wanted: SampleRequest,
    },
}

/// What became of it.
#[derive(Debug)]
pub struct Prepared {
    /// The sample as a record, packed as the form says; or why not.
    pub sample: Result<(Vec<u8>, ServerCost), StoreError>,
    /// What went over the wire for it.
    pub traffic: Traffic,
}

/// What a peer spent on an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerCost {
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

/// No sample is larger, and none takes longer: numbers of a peer beyond this are wrong or meant to do harm.
const MOST_BYTES: u64 = 1 << 40;
const MOST_NANOSECONDS: u64 = 86_400 * 1_000_000_000;
const MOST_TRIALS: usize = 1000;
const MOST_RATE: f64 = 1e13;

impl ServerCost {
    /// Whether its numbers can be those of an answer to `asked`: they come from another machine and are reckoned with.
    pub fn answers(&self, asked: &Asked) -> bool {
        let is_form = match asked {
            Asked::Sample { form, .. } => Form { packing: form.packing, ..self.form } == *form,
            Asked::Trials { .. } => true,
        };
        let is_rate = |rate: f64| (0.0..MOST_RATE).contains(&rate);
        let is_trial = |trial: &Trial| trial.bytes <= MOST_BYTES && trial.nanoseconds <= MOST_NANOSECONDS;
        is_form
            && self.stored_bytes <= MOST_BYTES
            && self.nanoseconds <= MOST_NANOSECONDS
            && is_rate(f64::from(self.cores))
            && self.bytes_per_second.is_none_or(is_rate)
            && self.trials.len() <= MOST_TRIALS
            && self.trials.iter().all(is_trial)
    }
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
