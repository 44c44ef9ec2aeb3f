//! Progress messages of an examination, and of trials of remedies.

use std::fmt;

use super::remedy::Change;

/// Progress of an examination or of a trial.
#[derive(Clone, Debug)]
pub enum ProgressEvent {
    /// A measurement begins: its name, and about how many seconds it takes.
    Measures(&'static str, f64),
    /// The prediction for the joint run, made before it begins: samples per second, and their range.
    Predicted(f64, [f64; 2]),
    /// A remedy is not measured: its name, and the reason.
    LeftOut(&'static str, String),
    /// A trial begins: its change, and about how many seconds it takes.
    Tries(Change, f64),
    /// A change is not tried, and the reason.
    NotTried(Change, String),
}

impl fmt::Display for ProgressEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measures(what, seconds) => write!(f, "measuring {what} (about {seconds:.0} s)"),
            Self::Predicted(rate, [low, high]) if low < high => {
                write!(
                    f,
                    "predicted: {low:.1} to {high:.1} samples/s, {rate:.1} on average, because the share of cores varies"
                )
            }
            Self::Predicted(rate, _) => write!(f, "predicted: {rate:.1} samples/s"),
            Self::LeftOut(what, why) => write!(f, "{what} is not measured: {why}"),
            Self::Tries(change, seconds) => write!(f, "trying {change} (about {seconds:.0} s)"),
            Self::NotTried(change, why) => write!(f, "{change} is not tried: {why}"),
        }
    }
}
