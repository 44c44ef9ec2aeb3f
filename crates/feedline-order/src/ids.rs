//! Newtypes for numbers that must not be mixed.

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);
    };
}

number!(
    /// The user's seed. All randomness of a run follows from it.
    Seed(u64)
);
number!(
    /// One pass over the data, counted from 0.
    Epoch(u64)
);
number!(
    /// The number of a sample in its source. A subset keeps the numbers of its parent.
    SampleId(u64)
);
number!(
    /// A place in the order of one epoch, counted over all ranks.
    Position(u64)
);
number!(
    /// A sample's place in the list of its source. A subset counts its own samples, while their ids stay those of its parent.
    Ordinal(u64)
);
number!(
    /// A sample's place in the share of a rank, by the sampler's order.
    ShareIndex(u64)
);
number!(
    /// A place in the order in which a rank receives its share. In strict order turn `n` has the sample with share index `n`.
    Turn(u64)
);
number!(
    /// A place in the order in which samples leave a rank's reservoir, counted from the start of the epoch.
    ReservoirTurn(u64)
);
number!(
    /// A place in the order in which the readers of a rank read samples.
    WalkStep(u64)
);
number!(
    /// How often a sampler has already given the same sample in the epoch.
    Occurrence(u32)
);

/// A sample and everything its bytes depend on besides the plan. This is enough to prepare it on any machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SampleRequest {
    /// The sample.
    pub id: SampleId,
    /// The epoch of its draws.
    pub epoch: Epoch,
    /// How often it came before in the epoch.
    pub occurrence: Occurrence,
}

/// One rank of a distributed job, out of `world`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rank {
    /// The number of this process, below `world`.
    pub rank: u32,
    /// The number of processes that share the epoch.
    pub world: u32,
}

impl Rank {
    /// A job of one process.
    pub const ALONE: Self = Self { rank: 0, world: 1 };
}

impl Default for Rank {
    fn default() -> Self {
        Self::ALONE
    }
}

impl Epoch {
    /// The largest epoch: never reached in practice, and far from overflow.
    pub const LAST: Self = Self(u64::MAX / 2);
}
