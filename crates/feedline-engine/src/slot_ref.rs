//! Serial numbers of batches in a run, and references to their slots.

/// The serial number of a batch in its run. A run never reuses a number, so a late report of a dropped batch matches nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchSerial(pub u64);

impl BatchSerial {
    /// The number of the following batch.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// One slot of one batch of a run. The smaller one is needed sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotRef {
    /// The batch.
    pub batch: BatchSerial,
    /// The slot's index in the batch.
    pub slot: usize,
}
