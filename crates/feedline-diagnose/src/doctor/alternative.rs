//! Changes of a plan whose gain must be measured.

use std::sync::Arc;

use feedline_data::op::PlannedOp;
use feedline_data::plan::{ByteSize, Plan, PlanError, Policy, Registry, ReservoirConfig, SeekIndexUse, Shuffle};
use feedline_engine::loader::Loader;

use super::DoctorError;
use super::cached::best_cache;
use super::parts::{Parts, samples_of_a_batch, step};
use super::remedy::Change;
use super::trial::TrialMachine;
use super::verdict::Bound;
use super::watch::{Job, Trainer, watch, watch_loader};

/// Factor by which larger reads are tried.
const READ_FACTOR: u64 = 4;
/// Duration of an offload profile, or of a run with another batch size, in multiples of a part's.
const PROFILE_FACTOR: f64 = 3.0;

/// A changed plan whose speed is to be measured.
#[derive(Clone, Debug)]
pub(super) struct Alternative {
    /// The change.
    pub change: Change,
    /// The plan with the change, or with a part of its samples.
    pub plan: Arc<Plan>,
    /// Its cost and its drawbacks, in words.
    pub note: String,
}

/// The changes to try, given the bottleneck.
pub(super) fn alternatives(job: Job<'_>, parts: &Parts, bound: Bound) -> Result<Vec<Alternative>, DoctorError> {
    let plan = job.plan;
    let is_loading = matches!(bound, Bound::Prepare | Bound::Read | Bound::Network);
    let is_reading = matches!(bound, Bound::Read | Bound::Network);
    let decodes = is_loading && plan.ops().iter().any(is_decoder);
    let is_exact = !plan.ops().iter().any(PlannedOp::is_approximate);
    let has_index = plan.config().seek_index == SeekIndexUse::Auto;
    let is_near = plan.source().peer().is_some() && plan.config().offload == Policy::None;
    let index_note = "indexes are built in the first epoch; the pixels stay the same";
    let reads_note = "larger sequential reads; samples are shuffled in a reservoir";
    // A cache helps whenever preparation is the limit, whichever part of it, including single slow samples.
    let is_cached = is_loading || matches!(bound, Bound::Python | Bound::HeadOfLine);
    let cache = is_cached.then(|| best_cache(plan, parts, job.machine)).flatten();
    let possible = [
        (decodes && !has_index).then(|| (Change::SeekIndex, index_note.to_owned())),
        (decodes && is_exact && bound == Bound::Prepare)
            .then(|| (Change::FastDecode, "pixels are approximate: see the guide".to_owned())),
        (is_near && is_loading).then(|| (Change::Offload, "the bytes of samples stay the same".to_owned())),
        is_reading.then(|| larger_reads(plan)).flatten().map(|change| (change, reads_note.to_owned())),
        other_batch(plan, bound).map(|change| (change, batch_note(bound).to_owned())),
        cache,
    ];
    let mut found = Vec::new();
    for (change, note) in possible.into_iter().flatten() {
        match change.apply(plan) {
            Ok(plan) => found.extend(plan.map(|plan| Alternative { change, plan, note })),
            // Not every change fits every setting. For example, samples that are read in sequence cannot be cached.
            Err(DoctorError::Plan(error)) => {
                tracing::debug!(%error, change = change.name(), "a change does not fit the plan");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Sequential reads if samples are stored next to each other, or longer ones.
fn larger_reads(plan: &Plan) -> Option<Change> {
    // Only sources with blocks, such as shards, can be read in sequence.
    plan.source().blocks()?;
    let block = match &plan.settings().shuffle {
        Shuffle::Never => return None,
        Shuffle::Full => ReservoirConfig::default().block,
        Shuffle::Reservoir(config) => ByteSize(config.block.0.saturating_mul(READ_FACTOR)),
    };
    Some(Change::Reads { block: block.0 })
}

/// A smaller batch of which more fit into memory, or a larger one with less overhead per sample.
fn other_batch(plan: &Plan, bound: Bound) -> Option<Change> {
    let batch_size = plan.settings().batch_size;
    match bound {
        Bound::Step | Bound::HandOver if 2 * batch_size as u64 <= plan.share(0).samples() => {
            Some(Change::BatchSize { batch_size: 2 * batch_size })
        }
        Bound::Memory if batch_size > 1 => Some(Change::BatchSize { batch_size: batch_size / 2 }),
        _ => None,
    }
}

fn batch_note(bound: Bound) -> &'static str {
    match bound {
        Bound::Memory => "more batches fit into the budget; the learning rate may need to change",
        _ => "measured with your step; the learning rate may need to change",
    }
}

impl Alternative {
    /// The samples per second of a job with this change.
    pub(super) fn predicted(
        &self,
        job: Job<'_>,
        parts: &Parts,
        bound: Bound,
        trainer: &mut dyn Trainer,
    ) -> Result<f64, DoctorError> {
        // Keeps the folder of the trial until this function returns.
        let machine = &TrialMachine::new(&self.change, job.machine)?.machine;
        let job = Job { plan: &self.plan, machine, ..job };
        let longer = Job { seconds: PROFILE_FACTOR * job.seconds, ..job };
        let times = match self.change {
            // Slow samples are a matter of order, which parts measured alone do not show. Then the whole job runs, below.
            Change::Cache { .. } if bound != Bound::HeadOfLine => parts.measure_cached(job, trainer)?.times(),
            Change::Offload => return profiled(longer, trainer),
            // Only the step depends on the batch size, so only the step is measured again.
            Change::BatchSize { .. } if bound == Bound::Step => {
                let step_ms = step(job, trainer)?;
                Parts { batch_size: samples_of_a_batch(&self.plan), step_ms, ..parts.clone() }.times()
            }
            Change::Cache { .. } | Change::BatchSize { .. } => {
                return Ok(watch(longer, trainer)?.samples_per_second());
            }
            _ => Parts::measure_with_step(job, parts.step_ms, trainer)?.times(),
        };
        Ok(times.samples_per_second())
    }
}

/// Samples per second according to the profile of offload decisions, measured while the job runs.
fn profiled(job: Job<'_>, trainer: &mut dyn Trainer) -> Result<f64, DoctorError> {
    let loader = Loader::new(Arc::clone(job.plan), job.machine);
    let watched = watch_loader(&loader, job.seconds, trainer);
    let report = loader.offload();
    loader.close();
    let measured = watched?.samples_per_second();
    // The advisor changes its decisions during the run, so its prediction for the final ones counts, if it has one.
    Ok(report.map(|report| report.throughput.after).filter(|predicted| *predicted > 0.0).unwrap_or(measured))
}

/// The plan's ops with approximate decoding.
pub(super) fn fast(plan: &Plan) -> Result<Vec<PlannedOp>, DoctorError> {
    // Rebuilt from its table, so that the changed parameter is checked like user input.
    let registry = Registry::core();
    let change = |planned: &PlannedOp| {
        if !is_decoder(planned) {
            return Ok(planned.clone());
        }
        let mut table = planned.table().map_err(PlanError::from)?;
        table.insert("fast".to_owned(), true.into());
        Ok(registry.build_op(table)?)
    };
    plan.ops().iter().map(change).collect()
}

fn is_decoder(planned: &PlannedOp) -> bool {
    planned.op().on().names().any(|name| planned.op().decoding(name).is_some())
}
