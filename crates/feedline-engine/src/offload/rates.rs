//! The speeds of the resources that a sample needs: the first stage of a decision.

use feedline_data::cost::Times;

/// The measured speeds of machines and link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// Seconds of the consumer per sample.
    pub step: f64,
    /// Bytes per second.
    pub link: f64,
    /// Cores of the server for this job.
    pub storage_cores: f64,
    /// Cores of this machine in use.
    pub cores: f64,
}

impl Rates {
    /// The time that a sample needs on each resource.
    pub(super) fn times(&self, bytes: f64, storage_seconds: f64, local_seconds: f64) -> Times {
        Times {
            step: self.step,
            // Work is spread over the cores, so a sample takes its CPU time divided by their number.
            prepare: local_seconds / self.cores,
            network: bytes / self.link,
            storage: storage_seconds / self.storage_cores,
            ..Times::default()
        }
    }
}
