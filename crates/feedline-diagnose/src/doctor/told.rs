//! What is told while a job is examined and remedies are tried.

use std::fmt;

use super::remedy::Change;

/// Progress of an examination or of a trial.
#[derive(Clone, Debug)]
pub enum Told {
    /// What is measured now, and about how many seconds that takes.
    Measures(&'static str, f64),
    /// What the joint run will reach, before it begins, and within which range.
    Predicted(f64, [f64; 2]),
    /// A remedy that is not looked at, and why.
    LeftOut(&'static str, String),
    /// The change that is tried now, and about how many seconds that takes.
    Tries(Change, f64),
    /// A change that is not tried, and why.
    NotTried(Change, String),
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measures(what, seconds) => write!(f, "measuring {what} (about {seconds:.0} s)"),
            Self::Predicted(rate, [low, high]) if low < high => {
                write!(f, "predicted: {low:.1} to {high:.1} samples/s, {rate:.1} on average: the share of cores varies")
            }
            Self::Predicted(rate, _) => write!(f, "predicted: {rate:.1} samples/s"),
            Self::LeftOut(what, why) => write!(f, "{what} is not looked at: {why}"),
            Self::Tries(change, seconds) => write!(f, "trying {change} (about {seconds:.0} s)"),
            Self::NotTried(change, why) => write!(f, "{change} is not tried: {why}"),
        }
    }
}
