//! Remedies, and their gains.
//!
//! In: the parts of a job and its bottleneck. Out: remedies with their predicted samples per second, the best first. Most are
//! changes of the plan that can be tried.

use std::fmt;
use std::sync::Arc;

use feedline_data::plan::{
    ByteSize, CacheConfig, CacheForm, Order, Plan, Policy, ReservoirConfig, SeekIndexUse, Shuffle, Start, Workers,
};
use serde::Serialize;

use super::DoctorError;
use super::alternative::{Alternative, fast};
use super::parts::{Parts, varied};
use super::verdict::Bound;

/// Least gain of a reported remedy.
const MIN_GAIN: f64 = 0.05;
/// Upper limit of threads to consider.
const MAX_WORKERS: usize = 256;
/// Once this fraction of the best speed is reached, further threads are not worth it.
const KNEE: f64 = 0.98;
/// Factor by which a larger budget is tried.
pub(super) const MORE_MEMORY: u64 = 4;

/// A change of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// More preparer threads.
    Workers {
        /// How many.
        num_workers: usize,
    },
    /// A cache of samples between epochs.
    Cache {
        /// The cached form.
        form: CacheForm,
        /// Bytes of memory.
        ram: Option<u64>,
        /// Bytes on disk.
        disk: Option<u64>,
    },
    /// A larger memory budget.
    Memory {
        /// Bytes.
        memory_budget: u64,
    },
    /// A planned order: slow samples come later.
    Planned,
    /// A seek index: only the part of a picture that a crop needs is read and decoded.
    SeekIndex,
    /// Approximate decoding at a smaller size.
    FastDecode,
    /// A storage server that does a part of the work.
    Offload,
    /// One load for several jobs.
    Share {
        /// How many.
        jobs: usize,
    },
    /// Shards, read in sequence.
    Pack,
    /// Longer sequential reads.
    Reads {
        /// Bytes of a block, which is read in one go.
        block: u64,
    },
    /// Another batch size.
    BatchSize {
        /// Samples per batch.
        batch_size: usize,
    },
    /// Native ops instead of Python functions.
    Native {
        /// Their names.
        ops: Vec<String>,
    },
}

/// A remedy.
#[derive(Clone, Debug, Serialize)]
pub struct Remedy {
    /// What to change.
    #[serde(flatten)]
    pub change: Change,
    /// Samples per second with it.
    pub predicted_samples_per_second: f64,
    /// The relative gain. 0.5 means 1.5 times as fast.
    pub predicted_gain: f64,
    /// The relative error of the prediction, because the share of cores varied during the measurement. 0.5 means 50 %.
    pub error_band: f64,
    /// Its cost and its drawbacks, in words.
    pub note: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workers { num_workers } => write!(f, "num_workers={num_workers}"),
            Self::Cache { form, ram, disk } => {
                let place = if ram.is_some() { "ram" } else { "disk" };
                let bytes = ByteSize(ram.or(*disk).unwrap_or_default());
                write!(f, "cache=fl.cache({place}=\"{bytes}\", form=\"{form}\")")
            }
            Self::Memory { memory_budget } => write!(f, "memory_budget=\"{}\"", ByteSize(*memory_budget)),
            Self::Planned => f.write_str("order=fl.planned()"),
            Self::SeekIndex => f.write_str("tuning=fl.tuning(seek_index=\"auto\")"),
            Self::FastDecode => f.write_str("ops.DecodeImage(fast=True)"),
            Self::Offload => f.write_str("tuning=fl.tuning(offload=\"auto\")"),
            Self::Share { jobs } => write!(f, "share=True in {jobs} jobs on the same data"),
            Self::Pack => f.write_str("feedline pack, then fl.tar(...) with shuffle=fl.reservoir(...)"),
            Self::Reads { block } => write!(f, "shuffle=fl.reservoir(block=\"{}\")", ByteSize(*block)),
            Self::BatchSize { batch_size } => write!(f, "batch_size={batch_size}"),
            Self::Native { ops } => write!(f, "native ops in place of {}", ops.join(", ")),
        }
    }
}

impl Change {
    /// Whether a run must cache or index samples before it shows the gain.
    pub(crate) fn warms_up(&self) -> bool {
        matches!(self, Self::Cache { .. } | Self::SeekIndex)
    }

    /// Its name on the command line.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Workers { .. } => "workers",
            Self::Cache { .. } => "cache",
            Self::Memory { .. } => "memory",
            Self::Planned => "planned",
            Self::SeekIndex => "seek-index",
            Self::FastDecode => "fast-decode",
            Self::Offload => "offload",
            Self::Share { .. } => "share",
            Self::Pack => "pack",
            Self::Reads { .. } => "reads",
            Self::BatchSize { .. } => "batch-size",
            Self::Native { .. } => "native",
        }
    }

    /// The plan with the change. `None` if the change is not one of the plan. `Pack` leaves the plan as it is: the shards are made
    /// when the change is tried.
    pub(crate) fn apply(&self, plan: &Plan) -> Result<Option<Arc<Plan>>, DoctorError> {
        // Sharing needs other jobs, and native ops need other code.
        if matches!(self, Self::Share { .. } | Self::Native { .. }) {
            return Ok(None);
        }
        let ops = if *self == Self::FastDecode { fast(plan)? } else { plan.ops().to_vec() };
        let changed = varied(plan, plan.source(), ops, |settings, config| match self {
            Self::Workers { num_workers } => config.num_workers = Workers::Count(*num_workers),
            Self::Cache { form, ram, disk } => {
                let (ram, disk) = (ram.map(ByteSize), disk.map(ByteSize));
                config.cache = Some(CacheConfig { ram, disk, form: Some(*form) });
            }
            Self::Memory { memory_budget } => config.memory_budget = Some(ByteSize(*memory_budget)),
            Self::Planned => {
                settings.order = Order::Planned;
                // A planned order relies on starting slow samples early. So the user's settings for that are dropped.
                (config.start, config.prefetch_batches) = (Start::LeastSlack, None);
            }
            Self::SeekIndex => config.seek_index = SeekIndexUse::Auto,
            Self::Offload => config.offload = Policy::Auto,
            Self::Reads { block } => {
                let config = match &settings.shuffle {
                    Shuffle::Reservoir(config) => *config,
                    _ => ReservoirConfig::default(),
                };
                settings.shuffle = Shuffle::Reservoir(ReservoirConfig { block: ByteSize(*block), ..config });
            }
            Self::BatchSize { batch_size } => settings.batch_size = *batch_size,
            Self::FastDecode | Self::Share { .. } | Self::Pack | Self::Native { .. } => {}
        })?;
        Ok(Some(changed))
    }
}

/// The input for finding remedies.
pub(super) struct Case<'a> {
    pub plan: &'a Plan,
    pub parts: &'a Parts,
    pub bound: Bound,
    /// Samples per second of the job as it is.
    pub measured: f64,
    /// The larger budget that was tried, and the samples per second with it.
    pub with_memory: Option<(u64, f64)>,
    /// The measured changes, with their samples per second.
    pub alternatives: &'a [(Alternative, f64)],
}

impl Case<'_> {
    /// All remedies, the best first.
    pub(super) fn remedies(&self) -> Vec<Remedy> {
        let found = [self.workers(), self.memory(), self.planned(), self.native()];
        let mut found: Vec<Remedy> = found.into_iter().flatten().chain(self.alternatives()).collect();
        // A gain that is smaller than its error does not count.
        found.retain(|remedy| remedy.predicted_gain >= MIN_GAIN.max(remedy.error_band));
        found.sort_by(|a, b| b.predicted_gain.total_cmp(&a.predicted_gain));
        // Sharing does not make this job faster, so it is added regardless of the gain.
        found.extend(self.share());
        found
    }

    fn remedy(&self, change: Change, predicted: f64, note: String) -> Remedy {
        let predicted_gain = if self.measured > 0.0 { predicted / self.measured - 1.0 } else { 0.0 };
        let error_band = self.parts.error_band();
        Remedy { change, predicted_samples_per_second: predicted, predicted_gain, error_band, note }
    }

    /// The smallest number of threads that is nearly as fast as [`MAX_WORKERS`].
    fn workers(&self) -> Option<Remedy> {
        let is_reading = matches!(self.bound, Bound::Read | Bound::Network);
        // Without a speed of the store it is unknown whether more threads would read faster.
        let knows_store = self.parts.read_samples_per_second.is_some();
        // In these cases threads are not the bottleneck, so more of them do not help.
        let is_other = matches!(self.bound, Bound::Step | Bound::HeadOfLine | Bound::Memory | Bound::HandOver);
        if is_other || (is_reading && !knows_store) {
            return None;
        }
        let reached = |workers| self.parts.with_workers(workers).times().samples_per_second();
        // The predicted speed does not fall with more threads, so the largest number gives the best speed.
        let most = reached(MAX_WORKERS);
        let num_workers =
            (self.parts.num_workers + 1..=MAX_WORKERS).find(|workers| reached(*workers) >= KNEE * most)?;
        let note = format!("more threads than this gain less than {:.0} %", 100.0 * (1.0 - KNEE));
        let remedy = self.remedy(Change::Workers { num_workers }, reached(num_workers), note);
        // With more threads cores may become the bottleneck, and their share varied.
        let error_band = remedy.error_band.max(self.parts.with_workers(num_workers).error_band());
        Some(Remedy { error_band, ..remedy })
    }

    fn memory(&self) -> Option<Remedy> {
        let (memory_budget, reached) = self.with_memory.filter(|_| self.bound == Bound::Memory)?;
        let note = "measured with a budget four times as large".to_owned();
        Some(self.remedy(Change::Memory { memory_budget }, reached, note))
    }

    fn planned(&self) -> Option<Remedy> {
        if self.bound != Bound::HeadOfLine || self.plan.settings().order != Order::Strict {
            return None;
        }
        // Without waiting for slow samples, the job reaches what its resources allow.
        let predicted = self.parts.times().samples_per_second();
        let note = "slow samples come a few batches later, in an order that is the same on every machine".to_owned();
        Some(self.remedy(Change::Planned, predicted, note))
    }

    /// Native ops in place of all Python functions.
    fn native(&self) -> Option<Remedy> {
        let ops: Vec<String> = self.parts.ops.iter().filter(|op| op.is_foreign).map(|op| op.op.clone()).collect();
        if ops.is_empty() || self.bound != Bound::Python {
            return None;
        }
        let foreign: f64 = self.parts.ops.iter().filter(|op| op.is_foreign).map(|op| op.ms).sum();
        let changed = Parts {
            prepare_ms: (self.parts.prepare_ms - foreign).max(1e-3),
            prepare_cpu_ms: (self.parts.prepare_cpu_ms - self.parts.python_ms()).max(0.0),
            ops: self.parts.ops.iter().filter(|op| !op.is_foreign).cloned().collect(),
            ..self.parts.clone()
        };
        let note = "assumes that the native ops take no time".to_owned();
        Some(self.remedy(Change::Native { ops }, changed.times().samples_per_second(), note))
    }

    /// The changes that were measured.
    fn alternatives(&self) -> Vec<Remedy> {
        let remedy = |(alternative, predicted): &(Alternative, f64)| {
            self.remedy(alternative.change.clone(), *predicted, alternative.note.clone())
        };
        self.alternatives.iter().map(remedy).collect()
    }

    fn share(&self) -> Option<Remedy> {
        let is_loading = matches!(self.bound, Bound::Prepare | Bound::Read | Bound::Network | Bound::Python);
        let note = "prepares samples once for two jobs: each as fast as now, together twice as fast".to_owned();
        is_loading.then(|| self.remedy(Change::Share { jobs: 2 }, self.measured, note))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CoreShare;
    use feedline_data::testing::open;

    #[test]
    fn a_gain_within_the_error_of_the_measurement_is_not_proposed() {
        let plan = open("batch_size = 10\n[source]\nkind = \"synthetic\"\nn = 100\nshape = [4]\n").unwrap();
        // Two threads that compute half of the time, on four cores: eight threads would be four times as fast.
        let parts = Parts {
            batch_size: 10.0,
            num_workers: 2,
            cores: 4,
            free_cores: 4.0,
            step_ms: 0.0,
            is_remote: false,
            reads_ahead: false,
            read_samples_per_second: None,
            read_alone_samples_per_second: None,
            read_bytes: 0.0,
            prepare_samples_per_second: 200.0,
            prepare_ms: 10.0,
            prepare_cpu_ms: 5.0,
            core_wait_ms: 0.0,
            core_share: CoreShare::default(),
            ops: Vec::new(),
        };
        let names = |low: f64| {
            let core_share = CoreShare { low, ..CoreShare::default() };
            let parts = Parts { core_share, ..parts.clone() };
            let case = Case {
                plan: &plan,
                parts: &parts,
                bound: Bound::Prepare,
                measured: 200.0,
                with_memory: None,
                alternatives: &[],
            };
            case.remedies().iter().map(|remedy| remedy.change.name()).collect::<Vec<_>>()
        };
        assert_eq!(names(1.0), ["workers", "share"]);
        assert_eq!(names(0.5), ["workers", "share"], "the gain is larger than the error");
        assert_eq!(names(0.2), ["share"]);
    }
}
