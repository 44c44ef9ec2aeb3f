//! Numbers of the batches of a run, and of the slots in them.

/// The number of a batch in its run. A run uses no number twice, so a late report of a dropped batch finds nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchSerial(pub u64);

impl BatchSerial {
    /// The batch behind this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// One slot of one batch of a run. A smaller one is needed sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotRef {
    /// The batch.
    pub batch: BatchSerial,
    /// The slot's index in the batch.
    pub slot: usize,
}
