//! The doctor: where the time of a job goes, its bottleneck, and what would help.
//!
//! In: a plan, and a trainer that takes its batches. Out: a [`Diagnosis`]: each part measured alone, the predicted speed as the
//! minimum over resources, the measured speed, the bottleneck, and remedies with their gains.
//!
//! - `watch.rs` runs a plan with a trainer and records each batch; `log.rs` is that log, `anomaly.rs` finds anomalies in it,
//!   `period.rs` finds periodic stalls
//! - `skipped.rs` makes a plan that only reads, `held.rs` one that only prepares; `parts.rs` measures both, and the step
//! - `predict.rs` computes what a sample needs of each resource; `cores.rs` estimates the available cores, `core_share.rs` how
//!   steady they were
//! - `evidence.rs` holds the measurements of a job; only `verdict.rs` decides the bottleneck
//! - `remedy.rs` lists remedies; `alternative.rs` measures remedies that need a trial; `cached.rs` and `packed.rs` are two such remedies;
//!   `tried.rs` tries a remedy, `trial.rs` runs it and leaves nothing behind; `progress.rs` reports progress
//! - `tables.rs` measures scaling; `life.rs` is a timeline; `diagnosis.rs` does all of this; `run_report.rs` reports on a run
//!   without measurements, `foreign_report.rs` on another loader
//!
//! Always true: the stream of the examined job does not change. A prediction is made before its run.

mod alternative;
mod anomaly;
mod cached;
mod core_share;
mod cores;
mod diagnosis;
mod evidence;
mod foreign_report;
mod held;
mod life;
mod log;
mod packed;
mod parts;
mod period;
mod predict;
mod progress;
mod remedy;
mod run_report;
mod skipped;
mod tables;
mod trial;
mod tried;
mod verdict;
mod watch;

pub use anomaly::{Anomaly, PeriodCause};
pub use cached::CachePoint;
pub use core_share::CoreShare;
pub use diagnosis::{Diagnosis, ExaminationSettings, SlowSampleTime};
pub use evidence::{ConsumerThread, WorkerProcesses};
pub use foreign_report::ForeignReport;
pub use life::{BatchRow, BatchSpan, BatchStage, Life, TrainerLife};
pub use log::{BatchTime, LoadedBy, LogReport, Percentiles};
pub use parts::{OpPart, Parts};
pub use period::Period;
pub use progress::ProgressEvent;
pub use remedy::{Change, Remedy};
pub use run_report::RunReport;
pub use tables::{ConsumersRow, WorkersRow};
pub use tried::{Choice, Tried};
pub use verdict::Bound;
pub use watch::{Job, Trainer};

use std::path::PathBuf;

use feedline_data::pack::PackError;
use feedline_data::plan::{ByteSize, PlanError};
use feedline_data::source::SourceError;
use feedline_engine::error::Error;
use period::median;

/// Why there is no diagnosis.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum DoctorError {
    #[error(transparent)]
    Run(#[from] Error),
    #[error("a part of the plan cannot be run alone")]
    Plan(#[from] PlanError),
    #[error("a part of the samples cannot be held in memory")]
    Source(#[from] SourceError),
    #[error("the step failed")]
    Step(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the plan has no batches: it has fewer samples than a batch, and drop_last is set")]
    NoBatches,
    #[error("samples cannot be packed")]
    Pack(#[source] PackError),
    #[error("shards for the trial are written beside the cache folder, and there is none; set FEEDLINE_CACHE")]
    NoFolder,
    #[error("too little free space beside the cache folder to pack a part of the samples")]
    NoRoom,
    #[error("the shards need {needs}, but {folder:?} has {has} free; set FEEDLINE_CACHE to a larger disk")]
    SmallDisk { folder: PathBuf, needs: ByteSize, has: ByteSize },
    #[error("it would pack all samples into a folder beside the cache; name it to try it: pack")]
    PacksAll,
    #[error("it needs more than a change of settings")]
    NotOurs,
    #[error("there is nothing to try with the name {name:?}; the remedies for this job are: {names}")]
    NoRemedy { name: String, names: String },
    #[error("cannot create a folder for trials beside the cache")]
    Folder(#[source] std::io::Error),
    #[error("interrupted")]
    Interrupted,
}
