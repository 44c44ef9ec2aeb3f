//! Plans: the checked, serialisable description of a run.
//!
//! In: a source, ops and settings, from Python or from a TOML file. Out: a [`Plan`] in which everything fits: fields exist, kinds
//! match, and shapes are known as far as possible. User input ([`Settings`], tables) is converted once, here. No code outside this
//! folder looks at it again.

mod arrival_log;
mod bytes;
mod cache;
mod check;
mod document;
mod error;
mod fingerprint;
pub mod limits;
mod op_marks;
mod order;
mod planning;
mod policy;
mod prefix;
mod production;
mod registry;
mod settings;
mod shuffle;
mod shuffle_report;
mod sizes;
mod workload;

pub use arrival_log::{ArrivalLog, ArrivedBatch};
pub use bytes::ByteSize;
pub use cache::{CacheConfig, CacheForm};
pub use check::Plan;
pub use document::Document;
pub use error::PlanError;
pub use fingerprint::{Fingerprint, Fingerprints};
pub use op_marks::OpMarks;
pub use order::Order;
pub use policy::Policy;
pub use production::{INDEX_FIELD, KEY_FIELD, PADDED_FIELD, Unshared};
pub use registry::Registry;
pub use settings::{OnError, RunConfig, SeekIndexUse, Settings, Start, Workers};
pub use shuffle::{ReservoirConfig, ReservoirSize, Shuffle};
pub use shuffle_report::ShuffleReport;
