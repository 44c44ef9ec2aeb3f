//! Why a plan is rejected.

use feedline_order::SamplerError;

use crate::op::{MisplacedOp, UnwritableOp};
use crate::source::SourceError;
use crate::spec::SpecError;
use crate::store::StoreError;

/// Why a plan is rejected.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum PlanError {
    #[error(transparent)]
    Check(#[from] MisplacedOp),
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Source(SourceError),
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    #[error(
        "[run] names a rank or a world_size, but a plan is the same for all ranks; remove both lines, and \
         pass them to the loader, e.g. Loader.from_plan(plan, rank=0, world_size=2)"
    )]
    RankInPlan,
    #[error(
        "the plan has {op} with the function {function}, and functions can do anything on this machine; if you trust \
         the author of the plan, read it with allow_functions=True, on the command line with --allow-functions"
    )]
    Functions { op: String, function: String },
    #[error(
        "costs is {path:?}: {problem}; loader.save_costs(path) writes such a file; order=\"strict\" works without it"
    )]
    Costs { path: String, problem: String },
    #[error("replay is {path:?}: {problem}; order=fl.arrival(log=path) writes such a file")]
    Replay { path: String, problem: String },
    #[error("field {field:?} is still encoded; add ops.DecodeImage(), or ask for the bytes with ragged=({field:?},)")]
    StillEncoded { field: String },
    #[error("{what} names field {field:?}, but batches have {has}")]
    NoSuchField { what: &'static str, field: String, has: String },
    #[error("{setting} is {value}; {allowed}")]
    Setting { setting: &'static str, value: String, allowed: &'static str },
    #[error("{setting} is {value}; it must be at most {most}")]
    Limit { setting: &'static str, value: u64, most: u64 },
    #[error(
        "shuffle is a reservoir, which reads samples in sequence, but each sample of this source is a separate object; pack them into shards (feedline pack DATA SHARDS) and use fl.tar(\"SHARDS/*.tar\"), or use shuffle=True"
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
    #[error(transparent)]
    Unwritable(#[from] UnwritableOp),
}

/// A table that cannot be understood is an error of the plan, even if a source or a store noticed it.
impl From<SourceError> for PlanError {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Spec(spec) | SourceError::Store(StoreError::Spec(spec)) => Self::Spec(spec),
            other => Self::Source(other),
        }
    }
}

impl From<StoreError> for PlanError {
    fn from(error: StoreError) -> Self {
        SourceError::from(error).into()
    }
}
