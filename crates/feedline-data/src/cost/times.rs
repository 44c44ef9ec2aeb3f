//! The time that a sample needs on each resource. The slowest resource is the bottleneck.
//!
//! In: seconds per sample, measured or modelled, for resources that work in parallel. Out: the bottleneck, and the possible samples
//! per second. Offload decisions and diagnoses both use this.

use serde::Serialize;

/// Shorter times count as zero.
const MIN_SECONDS: f64 = 1e-9;

/// A resource that samples need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// The consumer. Then there is nothing to gain.
    #[strum(to_string = "the step")]
    Step,
    /// Preparer threads of this machine.
    #[strum(to_string = "preparing here")]
    Prepare,
    /// The cores that they run on.
    #[strum(to_string = "the cores here")]
    Cores,
    /// The Python interpreter, which all threads share.
    #[strum(to_string = "the interpreter")]
    Python,
    /// The store of this machine.
    #[strum(to_string = "the store")]
    Read,
    /// The link to another machine.
    #[strum(to_string = "the network")]
    Network,
    /// The CPU of a storage server.
    #[strum(to_string = "the server's processor")]
    Storage,
}

/// Seconds per sample on each resource. 0 if it is not needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "they are those of the resources")]
pub struct Times {
    pub step: f64,
    pub prepare: f64,
    pub cores: f64,
    pub python: f64,
    pub read: f64,
    pub network: f64,
    pub storage: f64,
}

impl Times {
    fn all(&self) -> [(Resource, f64); 7] {
        [
            (Resource::Step, self.step),
            (Resource::Prepare, self.prepare),
            (Resource::Cores, self.cores),
            (Resource::Python, self.python),
            (Resource::Read, self.read),
            (Resource::Network, self.network),
            (Resource::Storage, self.storage),
        ]
    }

    /// The bottleneck.
    pub fn bound(&self) -> Resource {
        // Of equal times, the first resource wins.
        let longest = self.all().into_iter().reduce(|a, b| if b.1 > a.1 { b } else { a });
        longest.map_or(Resource::Step, |(resource, _)| resource)
    }

    /// Seconds per sample, if all resources work in parallel.
    pub fn longest(&self) -> f64 {
        self.all().into_iter().map(|(_, seconds)| seconds).fold(0.0, f64::max)
    }

    /// The possible samples per second.
    pub fn samples_per_second(&self) -> f64 {
        1.0 / self.longest().max(MIN_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_decides() {
        let times = Times { step: 0.01, network: 0.04, storage: 0.02, ..Times::default() };
        assert_eq!((times.bound(), times.longest(), times.samples_per_second()), (Resource::Network, 0.04, 25.0));
        assert_eq!(Times::default().bound(), Resource::Step, "nothing is needed of anything else");
    }
}
