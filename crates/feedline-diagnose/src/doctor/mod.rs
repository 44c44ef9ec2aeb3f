//! The doctor: where the time of a job goes, what bounds it, and what would help.
//!
//! In: a plan, and a trainer that takes its batches. Out: a [`Diagnosis`]: each part measured alone, what the job will reach as the
//! least over its resources, what it does reach, one bound, and remedies with what each would gain.
//!
//! - `watch.rs` runs a plan with a trainer and keeps what each batch took; `log.rs` is that log, `oddity.rs` what is odd
//!   about it, `period.rs` of that stalls at equal distances
//! - `skipped.rs` makes a plan that only reads, `held.rs` one that only prepares; `parts.rs` measures both, and the step
//! - `predict.rs` is what a sample needs of each resource, `cores.rs` how many cores there are for it, `core_share.rs` how steadily
//! - `evidence.rs` is what is known of a job, measured or counted; `verdict.rs` alone decides what bounds it
//! - `remedy.rs` is what would help, `alternative.rs` of it what has to be measured first, `cached.rs` what could be kept, `packed.rs` what could be packed;
//!   `tried.rs` tries it, `trial.rs` runs a plan with it and leaves nothing behind; `told.rs` is what is told meanwhile
//! - `tables.rs` is how a job scales, `life.rs` the life of a stretch of batches; `diagnosis.rs` does all of this, `run_report.rs` what can be said of a run without
//!   measuring anything, `foreign_report.rs` of another loader
//!
//! Always true: the stream of the job that is examined is not changed; a prediction is made before the run that it is about.

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
mod remedy;
mod run_report;
mod skipped;
mod tables;
mod told;
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
pub use remedy::{Change, Remedy};
pub use run_report::RunReport;
pub use tables::{ConsumersRow, WorkersRow};
pub use told::ProgressEvent;
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
    #[error("the plan gives no batches: it has fewer samples than a batch, and drop_last is set")]
    NoBatches,
    #[error("samples cannot be packed")]
    Pack(#[source] PackError),
    #[error("there is no cache folder for shards to be made beside; set FEEDLINE_CACHE")]
    NoFolder,
    #[error("there is too little room beside the cache folder to pack a part of the samples")]
    NoRoom,
    #[error("shards take {needs}, and {folder:?} has room for {has}; set FEEDLINE_CACHE to a larger disk")]
    SmallDisk { folder: PathBuf, needs: ByteSize, has: ByteSize },
    #[error("it packs all samples into a folder beside the cache; try pack by its name")]
    PacksAll,
    #[error("it is more than a change of settings")]
    NotOurs,
    #[error("there is nothing to try by the name of {name:?}; remedies here are: {names}")]
    NoRemedy { name: String, names: String },
    #[error("a folder for trials cannot be made beside the cache")]
    Folder(#[source] std::io::Error),
    #[error("interrupted")]
    Interrupted,
}
