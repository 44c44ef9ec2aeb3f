//! A machine near the data, as the engine sees it.

use std::fmt::Debug;
use std::sync::Arc;

use feedline_order::SampleRequest;
use serde::{Deserialize, Serialize};

use super::{Fetch, Form, Prefix, StoreError, Traffic, Version};

/// Prepares samples near the data.
pub trait Peer: Send + Sync + Debug {
    /// Sends a request and returns at once. `done` is called once, from another thread or before this returns, unless the [`Fetch`]
    /// was dropped before.
    fn ask(&self, prefix: &Arc<Prefix>, peer_request: PeerRequest, done: Box<dyn FnOnce(Prepared) + Send>) -> Fetch;

    /// Whether it has refused to prepare a prefix.
    fn refuses(&self, _prefix: &Prefix) -> bool {
        false
    }

    /// The speed of the link while it is busy, in bytes per second, once enough was measured.
    fn bytes_per_second(&self) -> Option<f64>;
}

/// A request to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerRequest {
    /// A sample.
    Sample {
        /// The sample.
        request: SampleRequest,
        /// The form to send it in.
        form: Form,
        /// The versions of its files by field when they were listed. If they have changed, the peer refuses.
        stored: Vec<(String, Version)>,
    },
    /// The costs of a sample in all forms, without the sample itself.
    Trials {
        /// Which.
        request: SampleRequest,
    },
}

/// The answer to a request.
#[derive(Debug)]
pub struct Prepared {
    /// The sample as a record, packed as the form says; or why it failed.
    pub sample: Result<(Vec<u8>, ServerCost), StoreError>,
    /// The network traffic of the request.
    pub traffic: Traffic,
}

/// The cost of an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerCost {
    /// The form of the answer. It is unpacked if packing does not pay.
    pub form: Form,
    /// CPU time.
    pub nanoseconds: u64,
    /// Stored bytes of the sample.
    pub stored_bytes: u64,
    /// Cores that the peer has for this client, besides its other clients.
    pub cores: f32,
    /// The speed of the link while the peer sent something, in bytes per second, as the peer measures it.
    pub bytes_per_second: Option<f64>,
    /// The costs in other forms, if they were requested.
    pub trials: Vec<Trial>,
}

/// Upper limit of sizes and times in an answer. Larger numbers are wrong or hostile.
const MAX_BYTES: u64 = 1 << 40;
const MAX_NANOSECONDS: u64 = 86_400 * 1_000_000_000;
const MAX_TRIALS: usize = 1000;
const MAX_RATE: f64 = 1e13;

impl ServerCost {
    /// Whether its numbers are plausible for `peer_request`. They come from another machine and enter decisions.
    pub fn answers(&self, peer_request: &PeerRequest) -> bool {
        let is_form = match peer_request {
            // The packing may differ: a server sends bytes unpacked if packing does not pay.
            PeerRequest::Sample { form, .. } => Form { packing: form.packing, ..self.form } == *form,
            PeerRequest::Trials { .. } => true,
        };
        // `contains` is false for NaN, so that no NaN reaches the decisions.
        let is_rate = |rate: f64| (0.0..MAX_RATE).contains(&rate);
        let is_trial = |trial: &Trial| trial.bytes <= MAX_BYTES && trial.nanoseconds <= MAX_NANOSECONDS;
        is_form
            && self.stored_bytes <= MAX_BYTES
            && self.nanoseconds <= MAX_NANOSECONDS
            && is_rate(f64::from(self.cores))
            && self.bytes_per_second.is_none_or(is_rate)
            && self.trials.len() <= MAX_TRIALS
            && self.trials.iter().all(is_trial)
    }
}

/// The cost of a form for a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The form.
    pub form: Form,
    /// Bytes to send.
    pub bytes: u64,
    /// CPU time of the peer.
    pub nanoseconds: u64,
}
