//! Predicts how much work a stage has to do for a sample.

/// The predicted work of an op, or of loading, for one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkHint {
    /// None: its draw leaves the sample unchanged.
    Idle,
    /// The usual work.
    Usual,
    /// The usual work, and a search of a label for its foreground.
    Search,
}

impl WorkHint {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::Idle, Self::Usual, Self::Search];
}
