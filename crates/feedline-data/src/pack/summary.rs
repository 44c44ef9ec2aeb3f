//! The result of packing, and its errors.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::batch::Kind;
use crate::store::StoreError;

/// The result of packing, including earlier runs that this one continued.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Samples in the shards.
    pub samples: u64,
    /// Shards.
    pub shards: u64,
    /// Bytes of the shards.
    pub bytes: u64,
    /// Bytes of their indexes.
    pub index_bytes: u64,
    /// Samples that an earlier run had packed.
    pub resumed_samples: u64,
    /// Bytes that this run wrote.
    pub written_bytes: u64,
    /// Samples whose key is not simply their name without its ending.
    pub renamed: u64,
    /// Number of pictures that were made smaller.
    pub resized: u64,
    /// Number of samples that were left out.
    pub skipped: u64,
    /// Pictures that cannot be decoded.
    pub damaged: Vec<DamagedPicture>,
}

/// A picture that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DamagedPicture {
    /// The name of its sample in the source.
    pub name: String,
    /// Its field.
    pub field: String,
    /// What is wrong.
    pub problem: String,
}

/// Why packing ended.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum PackError {
    #[error(
        "field {field:?} is {kind}; a shard contains files (encoded bytes or text) and a class that is a whole number"
    )]
    NotAFile { field: String, kind: Kind },
    #[error("the class of {name:?} is not a whole number, or cannot be read")]
    Class { name: String },
    #[error("cannot read {name:?}; use --damaged skip to leave such samples out")]
    Read { name: String, source: StoreError },
    #[error("cannot write {path:?}")]
    Write { path: PathBuf, source: std::io::Error },
    #[error("{name:?} cannot be a part of a shard: {problem}")]
    Sample { name: String, problem: String },
    #[error("{folder:?} is being packed by another process; wait for it, or choose another folder")]
    Busy { folder: PathBuf },
    #[error("{folder:?} is not empty, but contains no shards of an earlier run of this command; choose another folder")]
    NotEmpty { folder: PathBuf },
    #[error(
        "{folder:?} contains shards of another source, or of this one before its files changed; choose another folder"
    )]
    OtherSource { folder: PathBuf },
    #[error(
        "{folder:?} contains shards made with other options ({differences}); use the same options, or choose another folder"
    )]
    OtherOptions { folder: PathBuf, differences: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cancelled")]
    Cancelled,
}
