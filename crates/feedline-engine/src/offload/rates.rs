//! How fast everything is that a sample needs: the first stage.

use feedline_data::cost::Times;

/// What is known of the machines and the link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// Seconds of the consumer for a sample.
    pub step: f64,
    /// Bytes a second.
    pub link: f64,
    /// Cores that the server has for this job.
    pub storage_cores: f64,
    /// Cores of this machine at work.
    pub cores: f64,
}

impl Rates {
    /// What a sample needs of each resource.
    pub(super) fn times(&self, bytes: f64, storage_seconds: f64, local_seconds: f64) -> Times {
        Times {
            step: self.step,
            prepare: local_seconds / self.cores,
            network: bytes / self.link,
            storage: storage_seconds / self.storage_cores,
            ..Times::default()
        }
    }
}
