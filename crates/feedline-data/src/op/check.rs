//! Why an op does not fit its place in a chain.

use crate::batch::Kind;

/// Why an op rejects its parameters or its fields. An op does not know its name: [`MisplacedOp`] adds it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum CheckError {
    #[error("needs {needs}, but field {field:?} is {has}{}", hint(has))]
    Needs { needs: &'static str, field: String, has: Kind },
    #[error("needs {needs}, but comes before {later}")]
    Before { needs: &'static str, later: String },
    #[error("works on field {field:?}, but samples have {has}; name the field with on=...")]
    NoSuchField { field: String, has: String },
    #[error("works on no field: on=() is empty")]
    NoFields,
    #[error("{0}")]
    Parameter(String),
}

/// An op that does not fit its place in a plan, or has wrong parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op}{} {cause}", if matches!(cause, CheckError::Parameter(_)) { ":" } else { "" })]
pub struct MisplacedOp {
    /// Its name.
    pub op: String,
    /// What is wrong.
    pub cause: CheckError,
}

fn hint(has: &Kind) -> &'static str {
    if *has == Kind::Bytes { "; add DecodeImage() before it" } else { "" }
}

impl CheckError {
    /// Rejects a pair that is not a range of positive numbers.
    pub(super) fn range(name: &str, [low, high]: [f64; 2]) -> Result<(), Self> {
        if low > 0.0 && low <= high && high.is_finite() {
            return Ok(());
        }
        Err(Self::Parameter(format!("{name} is ({low}, {high}); it has to be (low, high) with 0 < low <= high")))
    }

    /// Rejects a number that is not a probability.
    pub(super) fn probability(p: f64) -> Result<(), Self> {
        if (0.0..=1.0).contains(&p) {
            return Ok(());
        }
        Err(Self::Parameter(format!("p is {p}; a probability lies between 0 and 1")))
    }
}
