//! How much an op, or the loading of a sample, has to do.

/// How much a stage has to do for a sample, as far as that is known before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkHint {
    /// Nothing: its draw leaves the sample alone.
    Idle,
    /// Its work.
    Usual,
    /// Its work, and a label has to be searched for its foreground.
    Search,
}

impl WorkHint {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Idle, Self::Usual, Self::Search];
}
