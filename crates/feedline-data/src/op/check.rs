//! Why an op does not fit where it stands in a chain.

use crate::batch::Kind;

/// Why an op does not fit where it stands in the chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum CheckError {
    #[error("{op} needs {needs}, but field {field:?} is {has}{}", hint(has))]
    Needs { op: &'static str, needs: &'static str, field: String, has: Kind },
    #[error("{op} needs {needs}, but comes before {later}")]
    Before { op: &'static str, needs: &'static str, later: String },
    #[error("{op} works on field {field:?}, but samples have {has}; name the field with on=...")]
    NoSuchField { op: &'static str, field: String, has: String },
    #[error("{op} works on no field: on=() is empty")]
    NoFields { op: &'static str },
    #[error("{op}: {problem}")]
    Parameter { op: &'static str, problem: String },
}

fn hint(has: &Kind) -> &'static str {
    if *has == Kind::Bytes { "; add DecodeImage() before it" } else { "" }
}

impl CheckError {
    /// Refuses a pair that is not a range of numbers above 0.
    pub fn range(op: &'static str, name: &str, [low, high]: [f64; 2]) -> Result<(), Self> {
        if low > 0.0 && low <= high && high.is_finite() {
            return Ok(());
        }
        let problem = format!("{name} is ({low}, {high}); it has to be (low, high) with 0 < low <= high");
        Err(Self::Parameter { op, problem })
    }

    /// Refuses what is not a probability.
    pub fn probability(op: &'static str, p: f64) -> Result<(), Self> {
        if (0.0..=1.0).contains(&p) {
            return Ok(());
        }
        Err(Self::Parameter { op, problem: format!("p is {p}; a probability lies between 0 and 1") })
    }
}
