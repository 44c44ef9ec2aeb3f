//! What would help, and how much.
//!
//! In: the parts of a job and what bounds it. Out: remedies with the samples a second that each would give, best first. Each is a
//! change of the plan that can be tried.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::parts::{Parts, varied};
use super::verdict::Bound;
use super::{DoctorError, OpPart};
use crate::offload::Policy;
use crate::plan::{ByteSize, CacheConfig, CacheForm, Order, Plan, PlannedOp, Registry, SeekIndexUse, Start, Workers};
use crate::sink::Machine;

/// What a remedy has to gain before it is told.
const LEAST_GAIN: f64 = 0.03;
/// Most threads that are considered.
const MOST_WORKERS: usize = 256;
/// The part of what is reached with any number of threads at which further ones are not worth it.
const KNEE: f64 = 0.98;
/// Bytes a second at which a kept sample is copied out of memory.
const COPY_BYTES: f64 = 4e9;
/// The part of the machine's memory that a cache may take.
const MEMORY_SHARE: f64 = 0.5;
/// How much larger a budget is tried.
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
    /// Samples are kept between epochs.
    Cache {
        /// As what.
        form: CacheForm,
        /// Bytes of memory.
        ram: u64,
    },
    /// A larger budget.
    Memory {
        /// Bytes.
        memory_budget: u64,
    },
    /// Slow samples start early, or come later.
    Planned,
    /// Only the part of a picture that a crop needs is read and decoded.
    SeekIndex,
    /// Pictures are decoded at a smaller size where that is enough, approximately.
    FastDecode,
    /// A storage server does a part of the work.
    Offload,
    /// Several jobs are served by one load.
    Share {
        /// How many.
        jobs: usize,
    },
    /// Stored as shards, which are read in sequence.
    Pack,
    /// Ops in Python become native.
    Native {
        /// Their names.
        ops: Vec<String>,
    },
}

/// Something that would help.
#[derive(Clone, Debug, Serialize)]
pub struct Remedy {
    /// What to change.
    #[serde(flatten)]
    pub change: Change,
    /// Samples a second with it.
    pub predicted_samples_per_second: f64,
    /// How much more that is: 0.5 is half as much again.
    pub predicted_gain: f64,
    /// What it takes, and what is lost by it, in words.
    pub note: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workers { num_workers } => write!(f, "num_workers={num_workers}"),
            Self::Cache { form, ram } => {
                let form = format!("{form:?}").to_lowercase();
                write!(f, "cache=fl.cache(ram=\"{}\", form=\"{form}\")", ByteSize(*ram))
            }
            Self::Memory { memory_budget } => write!(f, "memory_budget=\"{}\"", ByteSize(*memory_budget)),
            Self::Planned => f.write_str("order=\"planned\""),
            Self::SeekIndex => f.write_str("seek_index=\"auto\""),
            Self::FastDecode => f.write_str("ops.DecodeImage(fast=True)"),
            Self::Offload => f.write_str("offload=\"auto\""),
            Self::Share { jobs } => write!(f, "share=True in {jobs} jobs on the same data"),
            Self::Pack => f.write_str("feedline pack, then fl.tar(...) with shuffle=fl.reservoir(...)"),
            Self::Native { ops } => write!(f, "native ops in place of {}", ops.join(", ")),
        }
    }
}

impl Change {
    /// The name by which it is asked for.
    pub fn name(&self) -> &'static str {
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
            Self::Native { .. } => "native",
        }
    }

    /// The plan with it, where it is a matter of settings.
    pub fn apply(&self, plan: &Plan) -> Result<Option<Arc<Plan>>, DoctorError> {
        if matches!(self, Self::Share { .. } | Self::Pack | Self::Native { .. }) {
            return Ok(None);
        }
        let ops = if *self == Self::FastDecode { fast(plan)? } else { plan.ops().to_vec() };
        let changed = varied(plan, plan.source(), ops, |settings, config| match self {
            Self::Workers { num_workers } => config.num_workers = Workers::Count(*num_workers),
            Self::Cache { form, ram } => {
                config.cache = Some(CacheConfig { ram: Some(ByteSize(*ram)), disk: None, form: Some(*form) });
            }
            Self::Memory { memory_budget } => config.memory_budget = Some(ByteSize(*memory_budget)),
            Self::Planned => {
                settings.order = Order::Planned;
                (config.start, config.prefetch_batches) = (Start::LeastSlack, None);
            }
            Self::SeekIndex => config.seek_index = SeekIndexUse::Auto,
            Self::Offload => config.offload = Policy::Auto,
            Self::FastDecode | Self::Share { .. } | Self::Pack | Self::Native { .. } => {}
        })?;
        Ok(Some(changed))
    }
}

/// A plan as it would be, whose parts are to be measured.
#[derive(Clone, Debug)]
pub struct Alternative {
    /// What is changed.
    pub change: Change,
    /// The plan with it, or with a part of its samples.
    pub plan: Arc<Plan>,
    /// What it takes, and what is lost by it, in words.
    pub note: &'static str,
}

/// The plan's ops, with pictures decoded approximately.
fn fast(plan: &Plan) -> Result<Vec<PlannedOp>, DoctorError> {
    let registry = Registry::core();
    let change = |planned: &PlannedOp| {
        if !is_decoder(planned) {
            return Ok(planned.clone());
        }
        let mut table = planned.table()?;
        table.insert("fast".to_owned(), true.into());
        Ok(registry.build_op(table)?)
    };
    plan.ops().iter().map(change).collect()
}

fn is_decoder(planned: &PlannedOp) -> bool {
    planned.op().on().names().any(|name| planned.op().decoding(name).is_some())
}

/// What could be changed about a plan that is bound by loading, where what it gains is not known before it is measured.
pub(super) fn alternatives(plan: &Plan, bound: Bound) -> Result<Vec<Alternative>, DoctorError> {
    if !matches!(bound, Bound::Prepare | Bound::Read | Bound::Network) {
        return Ok(Vec::new());
    }
    let decodes = plan.ops().iter().any(is_decoder);
    let is_exact = !plan.ops().iter().any(PlannedOp::is_approximate);
    let has_index = plan.config().seek_index == SeekIndexUse::Auto;
    let is_near = plan.source().peer().is_some() && plan.config().offload == Policy::None;
    let possible = [
        (decodes && !has_index, Change::SeekIndex, "indexes are made in the first epoch; the pixels stay the same"),
        (decodes && is_exact && bound == Bound::Prepare, Change::FastDecode, "pixels are approximate: see the guide"),
        (is_near, Change::Offload, "the bytes of samples stay the same"),
    ];
    let mut found = Vec::new();
    for (_, change, note) in possible.into_iter().filter(|(is_possible, ..)| *is_possible) {
        if let Some(plan) = change.apply(plan)? {
            found.push(Alternative { change, plan, note });
        }
    }
    Ok(found)
}

/// What is known when remedies are looked for.
pub(super) struct Case<'a> {
    pub plan: &'a Plan,
    pub parts: &'a Parts,
    pub bound: Bound,
    pub measured: f64,
    /// With a larger budget, where that was tried: how large, and what was reached.
    pub with_memory: Option<(u64, f64)>,
    pub machine: &'a Machine,
    pub alternatives: &'a [(Alternative, Parts)],
}

impl Case<'_> {
    /// All that would help, best first.
    pub fn remedies(&self) -> Vec<Remedy> {
        let found = [self.workers(), self.memory(), self.planned(), self.native(), self.share()];
        let mut found: Vec<Remedy> =
            found.into_iter().flatten().chain(self.caches()).chain(self.alternatives()).collect();
        found.retain(|remedy| remedy.predicted_gain >= LEAST_GAIN);
        found.sort_by(|a, b| b.predicted_gain.total_cmp(&a.predicted_gain));
        found
    }

    fn remedy(&self, change: Change, predicted: f64, note: String) -> Remedy {
        let predicted_gain = if self.measured > 0.0 { predicted / self.measured - 1.0 } else { 0.0 };
        Remedy { change, predicted_samples_per_second: predicted, predicted_gain, note }
    }

    /// As many threads as are worth it.
    fn workers(&self) -> Option<Remedy> {
        if matches!(self.bound, Bound::HeadOfLine | Bound::Memory | Bound::HandOver) {
            return None;
        }
        let reached = |workers| self.parts.with_workers(workers).capacities().samples_per_second();
        let most = reached(MOST_WORKERS);
        let num_workers =
            (self.parts.num_workers + 1..=MOST_WORKERS).find(|workers| reached(*workers) >= KNEE * most)?;
        let note = format!("the knee: further threads gain less than {:.0} %", 100.0 * (1.0 - KNEE));
        Some(self.remedy(Change::Workers { num_workers }, reached(num_workers), note))
    }

    fn caches(&self) -> Vec<Remedy> {
        if self.plan.config().cache.is_some() || matches!(self.bound, Bound::Memory | Bound::HandOver) {
            return Vec::new();
        }
        let decoded = self.plan.cut_of(CacheForm::Decoded);
        let forms = [CacheForm::Encoded, CacheForm::Decoded, CacheForm::Resized];
        let mut found: Vec<Remedy> = Vec::new();
        for form in forms {
            let cut = self.plan.cut_of(form);
            let is_own = match form {
                CacheForm::Encoded => true,
                CacheForm::Decoded => cut.0 > 0,
                CacheForm::Resized => cut > decoded,
            };
            let bytes = match cut.0.checked_sub(1) {
                Some(last) => self.parts.ops[last].bytes,
                None => self.parts.read_bytes,
            };
            let ram = (bytes * self.plan.source().len() as f64 * 1.1) as u64 + (1 << 20);
            let has_room = self.machine.memory_bytes.is_none_or(|all| (ram as f64) < MEMORY_SHARE * all as f64);
            if !is_own || bytes <= 0.0 || !has_room {
                continue;
            }
            let saved: f64 = self.parts.ops[..cut.0].iter().map(|op: &OpPart| op.ms).sum();
            let saved_cpu: f64 = self.parts.ops[..cut.0].iter().map(|op| op.cpu_ms).sum();
            let copied = 1e3 * bytes / COPY_BYTES;
            let changed = Parts {
                read_samples_per_second: None,
                read_alone_samples_per_second: None,
                prepare_ms: (self.parts.prepare_ms - saved).max(0.0) + copied,
                prepare_cpu_ms: (self.parts.prepare_cpu_ms - saved_cpu).max(0.0) + copied,
                ops: self.parts.ops[cut.0..].to_vec(),
                ..self.parts.clone()
            };
            let predicted = changed.capacities().samples_per_second();
            let note = format!("{} of memory, from the second epoch on; no augmentation is lost", ByteSize(ram));
            found.push(self.remedy(Change::Cache { form, ram }, predicted, note));
        }
        // Of those that gain alike, the one that takes least.
        let most = found.iter().map(|remedy| remedy.predicted_gain).fold(0.0, f64::max);
        found.retain(|remedy| remedy.predicted_gain >= 0.95 * most);
        found.truncate(1);
        found
    }

    fn memory(&self) -> Option<Remedy> {
        let (memory_budget, reached) = self.with_memory.filter(|_| self.bound == Bound::Memory)?;
        let note = "measured: a budget four times as large".to_owned();
        Some(self.remedy(Change::Memory { memory_budget }, reached, note))
    }

    fn planned(&self) -> Option<Remedy> {
        if self.bound != Bound::HeadOfLine || self.plan.settings().order != Order::Strict {
            return None;
        }
        let predicted = self.parts.capacities().samples_per_second();
        let note = "slow samples come a few batches later, in an order that is the same on every machine".to_owned();
        Some(self.remedy(Change::Planned, predicted, note))
    }

    fn native(&self) -> Option<Remedy> {
        let ops: Vec<String> = self.parts.ops.iter().filter(|op| op.is_foreign).map(|op| op.op.clone()).collect();
        if ops.is_empty() || self.bound != Bound::Python {
            return None;
        }
        let foreign: f64 = self.parts.ops.iter().filter(|op| op.is_foreign).map(|op| op.ms).sum();
        let changed = Parts {
            prepare_ms: (self.parts.prepare_ms - foreign).max(1e-3),
            ops: self.parts.ops.iter().filter(|op| !op.is_foreign).cloned().collect(),
            ..self.parts.clone()
        };
        let note = "as if they took no time".to_owned();
        Some(self.remedy(Change::Native { ops }, changed.capacities().samples_per_second(), note))
    }

    /// Those whose parts were measured.
    fn alternatives(&self) -> Vec<Remedy> {
        let told = |(alternative, parts): &(Alternative, Parts)| {
            let predicted = parts.capacities().samples_per_second();
            self.remedy(alternative.change.clone(), predicted, alternative.note.to_owned())
        };
        self.alternatives.iter().map(told).collect()
    }

    fn share(&self) -> Option<Remedy> {
        let is_loading = matches!(self.bound, Bound::Prepare | Bound::Read | Bound::Network | Bound::Python);
        let note = "for all jobs together; each sees every sample once an epoch".to_owned();
        is_loading.then(|| self.remedy(Change::Share { jobs: 2 }, 2.0 * self.measured, note))
    }
}
