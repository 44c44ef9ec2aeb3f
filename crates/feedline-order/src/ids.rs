//! Numbers that must not be mixed.

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
    /// The user's seed: all randomness of a run follows from it.
    Seed(u64)
);
number!(
    /// One pass over the data, counted from 0.
    Epoch(u64)
);
number!(
    /// The number of a sample in its source; a subset keeps its parent's numbers.
    SampleId(u64)
);
number!(
    /// A place in the order of one epoch, over all ranks together.
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
    /// A place in the order in which samples leave the reservoir of a rank, counted from the epoch's beginning.
    ReservoirTurn(u64)
);
number!(
    /// A place in the order in which the readers of a rank come upon samples.
    WalkStep(u64)
);
number!(
    /// How often a sampler gave the same sample earlier in the epoch.
    Occurrence(u32)
);

/// A sample and everything that its bytes depend on besides the plan: enough to prepare it on any machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SampleRequest {
    /// The sample.
    pub id: SampleId,
    /// The epoch whose draws it gets.
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
    /// The last that is counted to: far beyond what anybody reaches, and far from where numbers end.
    pub const LAST: Self = Self(u64::MAX / 2);
}
