//! What a sample needs of each resource; the one that needs longest bounds a job.
//!
//! In: seconds for a sample, measured or modelled, of everything that works at the same time. Out: which of them decides, and how many
//! samples a second that allows. Decisions about offloading and diagnoses are both made from this.

use serde::Serialize;

/// Seconds below this are nothing.
const LEAST: f64 = 1e-9;

/// Something that samples need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// The consumer: nothing to gain.
    #[strum(to_string = "the step")]
    Step,
    /// Threads that prepare on this machine.
    #[strum(to_string = "preparing here")]
    Prepare,
    /// The cores that they run on.
    #[strum(to_string = "the cores here")]
    Cores,
    /// The interpreter, of which there is one.
    #[strum(to_string = "the interpreter")]
    Python,
    /// The store of this machine.
    #[strum(to_string = "the store")]
    Read,
    /// The link to another one.
    #[strum(to_string = "the network")]
    Network,
    /// The processor of a storage server.
    #[strum(to_string = "the server's processor")]
    Storage,
}

/// Seconds that each resource needs for a sample; 0 for one that is not needed.
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

    /// The resource that needs longest.
    pub fn bound(&self) -> Resource {
        let longest = self.all().into_iter().reduce(|a, b| if b.1 > a.1 { b } else { a });
        longest.map_or(Resource::Step, |(resource, _)| resource)
    }

    /// Seconds for a sample, if all resources work at the same time.
    pub fn longest(&self) -> f64 {
        self.all().into_iter().map(|(_, seconds)| seconds).fold(0.0, f64::max)
    }

    /// Samples a second that all of them allow.
    pub fn samples_per_second(&self) -> f64 {
        1.0 / self.longest().max(LEAST)
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
