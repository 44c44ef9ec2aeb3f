//! How fast everything is that a sample needs: the first stage.

use std::fmt;

use serde::Serialize;

/// What may bound a job that gets its samples from a storage server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// The consumer: nothing to gain.
    Step,
    /// The processor of this machine.
    Prepare,
    /// The link.
    Network,
    /// The processor of the server.
    Storage,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Step => "the step",
            Self::Prepare => "preparing here",
            Self::Network => "the network",
            Self::Storage => "the server's processor",
        })
    }
}

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

/// Seconds that each resource needs for a sample; the longest decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// Of the consumer.
    pub step: f64,
    /// Of this machine's processor.
    pub prepare: f64,
    /// Of the link.
    pub network: f64,
    /// Of the server's processor.
    pub storage: f64,
}

impl Rates {
    /// What a sample needs of each resource.
    pub fn times(&self, bytes: f64, storage_seconds: f64, local_seconds: f64) -> Times {
        Times {
            step: self.step,
            prepare: local_seconds / self.cores,
            network: bytes / self.link,
            storage: storage_seconds / self.storage_cores,
        }
    }
}

impl Times {
    /// The resource that needs longest.
    pub fn bound(&self) -> Bound {
        let all = [
            (Bound::Step, self.step),
            (Bound::Prepare, self.prepare),
            (Bound::Network, self.network),
            (Bound::Storage, self.storage),
        ];
        let longest = all.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
        longest.map_or(Bound::Step, |(bound, _)| bound)
    }

    /// Seconds for a sample, if all resources work at the same time.
    pub fn longest(&self) -> f64 {
        [self.step, self.prepare, self.network, self.storage].into_iter().fold(0.0, f64::max)
    }
}
