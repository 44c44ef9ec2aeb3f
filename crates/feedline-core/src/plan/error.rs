//! Why a plan is refused.

use crate::batch::Kind;
use crate::order::SamplerError;
use crate::source::SourceError;
use crate::store::StoreError;

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

/// Why a plan is refused.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum PlanError {
    #[error(transparent)]
    Check(#[from] CheckError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    #[error(
        "[run] names a rank or a world_size, but a plan describes what all ranks have in common: remove both lines, and \
         give them to the loader, e.g. Loader.from_plan(plan, rank=0, world_size=2)"
    )]
    RankInPlan,
    #[error(
        "the plan has {op} with the function {function}, and functions can do anything on this machine; if you trust \
         whoever wrote the plan, read it with allow_functions=True, on the command line with --allow-functions"
    )]
    Functions { op: String, function: String },
    #[error(
        "costs is {path:?}: {problem}; loader.save_costs(path) writes such a file; order=\"strict\" goes on without it"
    )]
    Costs { path: String, problem: String },
    #[error("replay is {path:?}: {problem}; Loader(order=\"arrival\", arrival_log=path) writes such a file")]
    Replay { path: String, problem: String },
    #[error("parameters of {of} are wrong")]
    Parameters { of: String, source: Box<toml::de::Error> },
    #[error("{what} {name:?} is unknown; there are {known}")]
    Unknown { what: &'static str, name: String, known: String },
    #[error("{of} has no {key:?}, a text that says which it is")]
    NoName { of: String, key: &'static str },
    #[error("field {field:?} is still encoded; add ops.DecodeImage(), or ask for the bytes with ragged=({field:?},)")]
    StillEncoded { field: String },
    #[error("{what} names field {field:?}, but batches have {has}")]
    NoSuchField { what: &'static str, field: String, has: String },
    #[error("{setting} is {value}; {allowed}")]
    Setting { setting: &'static str, value: String, allowed: &'static str },
    #[error("{setting} is {value}; it is at most {most}")]
    Limit { setting: &'static str, value: u64, most: u64 },
    #[error(
        "shuffle is a reservoir, which is filled by reading in sequence, but samples of this source do not lie one behind the other; pack them into shards (feedline pack DATA SHARDS) and take fl.tar(\"SHARDS/*.tar\"), or take shuffle=True"
    )]
    NoBlocks,
    #[error("{0}")]
    TooLarge(String),
    #[error("this is a plan of format {found}, but this version reads format {known}; update feedline")]
    Version { found: String, known: i64 },
    #[error("the plan has no [source] table")]
    NoSource,
    #[error("the plan is not valid TOML")]
    Toml(#[source] Box<toml::de::Error>),
    #[error("op {op} cannot be written into a plan: {why}")]
    Unserialisable { op: String, why: String },
}
