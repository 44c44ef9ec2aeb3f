//! The whole examination of a job, from its parts to its remedies.

use std::collections::BTreeMap;
use std::sync::Arc;

use feedline_data::cost::Times;
use feedline_data::failure::chain;
use feedline_data::plan::{ByteSize, Plan};
use feedline_engine::loader::Loader;
use feedline_engine::machine::Machine;
use feedline_engine::metrics::Phase;
use feedline_order::Ordinal;
use serde::Serialize;

use super::DoctorError;
use super::alternative::{Alternative, alternatives};
use super::cached::{CachePoint, cache_points};
use super::evidence::{Examined, JobProfile, Joint, Stalls};
use super::life::Life;
use super::log::{BatchTime, LoadedBy, LogReport};
use super::packed::PackedSome;
use super::parts::{Parts, varied};
use super::progress::ProgressEvent;
use super::remedy::{Case, Change, MORE_MEMORY, Remedy};
use super::tables::{ConsumersRow, WorkersRow, by_consumers, by_workers};
use super::trial::without_log;
use super::verdict::{Bound, falls_short};
use super::watch::{Job, Trainer, Watched, watch, watch_loader};

/// Duration of each part as a fraction of the joint run, limited to 1 to 5 seconds, or to half of a short run.
const PART_FRACTION: f64 = 1.0 / 6.0;
/// Duration of each row of a table, as a fraction of the joint run.
const ROW_FRACTION: f64 = 1.0 / 20.0;
/// Number of samples to name.
const MAX_NAMED: usize = 5;
/// Slow samples are searched in sources up to this size.
const MAX_SEARCHED: u64 = 1 << 18;
/// A sample is slow above this multiple of the mean.
const SLOW_RATIO: f64 = 4.0;
/// A budget is large enough if less than this fraction was ever used.
const PRESSED_SHARE: f64 = 0.4;
/// Number of epochs of a training run, for the total loss.
const EPOCHS: f64 = 90.0;

/// The settings of an examination.
#[derive(Clone, Copy, Debug)]
pub struct ExaminationSettings {
    /// Duration of the joint run in seconds.
    pub seconds: f64,
    /// Whether to measure tables over consumers and threads.
    pub has_tables: bool,
}

/// A slow sample.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct SlowSampleTime {
    pub key: String,
    pub ms: f64,
}

/// The result of an examination.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// The bottleneck.
    pub bound: Bound,
    /// Samples per second, predicted before the joint run.
    pub predicted_samples_per_second: f64,
    /// The range of the prediction if the share of cores varied. Otherwise both ends are equal.
    pub predicted_range: [f64; 2],
    /// Samples per second, measured in the joint run.
    pub measured_samples_per_second: f64,
    /// The fraction of the time in which the accelerator waited.
    pub stall_share: f64,
    /// Seconds of waiting in the joint run, by cause.
    pub stall_seconds: BTreeMap<&'static str, f64>,
    /// Seconds that stalls would cost in 90 epochs.
    pub lost_seconds_in_90_epochs: f64,
    /// Seconds until the first batch.
    pub first_batch_seconds: f64,
    /// Remedies, the best first.
    pub remedies: Vec<Remedy>,
    /// Each part, measured alone.
    pub parts: Parts,
    /// Seconds per sample on each resource.
    pub times: Times,
    /// The joint run, batch by batch.
    pub log: LogReport,
    /// Samples that take much longer than others.
    pub slow_samples: Vec<SlowSampleTime>,
    /// The fraction of the threads' time without work.
    pub idle_share: f64,
    /// Samples per second with a larger memory budget, if it was tried.
    pub with_memory_samples_per_second: Option<f64>,
    /// The table over 1, 2, 4 and 8 consumers.
    pub consumers: Vec<ConsumersRow>,
    /// The table over numbers of threads.
    pub workers: Vec<WorkersRow>,
    /// The cuts at which samples could be cached.
    pub cache_points: Vec<CachePoint>,
    /// The times of all batches.
    pub batch_log: Vec<BatchTime>,
    /// The timeline of some batches.
    #[serde(skip)]
    pub life: Life,
}

impl Diagnosis {
    /// Examines a plan with a trainer.
    pub fn examine(
        plan: &Arc<Plan>,
        machine: &Machine,
        settings: ExaminationSettings,
        trainer: &mut dyn Trainer,
        report: &mut dyn FnMut(ProgressEvent),
    ) -> Result<Self, DoctorError> {
        // The examination must leave no traces: no arrival log, and no costs learned under trial conditions.
        let (plan, machine) = (&without_log(plan)?, &Machine { is_trial: true, ..machine.clone() });
        let whole = Job { plan, machine, seconds: settings.seconds };
        let part =
            Job { seconds: (settings.seconds * PART_FRACTION).clamp(1_f64.min(settings.seconds / 2.0), 5.0), ..whole };
        report(ProgressEvent::Measures("each part alone", 4.0 * part.seconds));
        let parts = Parts::measure(part, trainer)?;
        let times = parts.times();
        let predicted = times.samples_per_second();
        let predicted_range = parts.predicted_range();
        report(ProgressEvent::Predicted(predicted, predicted_range));
        report(ProgressEvent::Measures("all together", settings.seconds));
        let loader = Loader::new(Arc::clone(plan), machine);
        let watched = watch_loader(&loader, settings.seconds, trainer);
        // Before `close`, because the loader still has the learned costs.
        let slow_samples = slow_samples(&loader);
        loader.close();
        let watched = watched?;
        let log = LogReport::new(&watched.log, LoadedBy::Feedline);
        let joint = joint(&watched, &log);
        // Compares like with like: the joint run may have had another share of the cores than the parts.
        let now = as_in_joint_run(&parts, &watched);
        // Only if the job is slower than its parts and the budget was well used can memory be the reason.
        let with_memory = if falls_short(&now.times(), &joint) && is_pressed(&watched) {
            report(ProgressEvent::Measures("with more memory", settings.seconds));
            Some(with_memory(whole, &watched, trainer)?)
        } else {
            None
        };
        let with_more = with_memory.map(|(_, reached)| reached);
        let profile = JobProfile::from(&parts);
        let bound = Examined { times: &now.times(), profile, joint, with_memory: with_more }.bound();
        let alternatives = &measured_alternatives(part, &parts, bound, trainer, report)?[..];
        let measured = joint.samples_per_second;
        let remedies = Case { plan, parts: &now, bound, measured, with_memory, alternatives }.remedies();
        let (mut consumers, mut workers) = (Vec::new(), Vec::new());
        if settings.has_tables {
            let row = Job { seconds: (settings.seconds * ROW_FRACTION).clamp(1.0, 3.0), ..whole };
            report(ProgressEvent::Measures("more consumers and threads", 12.0 * row.seconds));
            consumers = by_consumers(row, parts.step_ms, trainer)?;
            workers = by_workers(row, parts.step_ms, trainer)?;
        }
        let samples = plan.share(0).samples() as f64;
        // A sample takes 1/measured seconds, and would take only its part of the step if loading kept up.
        let lost_a_sample = if measured > 0.0 { 1.0 / measured - times.step } else { 0.0 };
        let cache_points = cache_points(plan, &parts);
        Ok(Self {
            bound,
            predicted_samples_per_second: predicted,
            predicted_range,
            measured_samples_per_second: measured,
            stall_share: joint.stall_share,
            stall_seconds: stall_seconds(&watched),
            lost_seconds_in_90_epochs: (EPOCHS * samples * lost_a_sample).max(0.0),
            first_batch_seconds: watched.first_batch,
            remedies,
            parts,
            times,
            log,
            slow_samples,
            idle_share: watched.idle_share(),
            with_memory_samples_per_second: with_more,
            consumers,
            workers,
            cache_points,
            batch_log: watched.log,
            life: watched.life,
        })
    }
}

/// The parts at the share of cores of the joint run. The run is judged, and changes are compared, by these.
fn as_in_joint_run(parts: &Parts, watched: &Watched) -> Parts {
    let joint_share = watched.core_share.unwrap_or(parts.core_share);
    let core_share = parts.core_share.joined(joint_share);
    let wide = Parts { core_share, ..parts.clone() };
    // With a steady share both measurements agree, and scaling would only add noise.
    if core_share.varies() { wide.at_core_share(joint_share.mean) } else { wide }
}

/// The measured changes, each with its samples per second.
fn measured_alternatives(
    job: Job<'_>,
    parts: &Parts,
    bound: Bound,
    trainer: &mut dyn Trainer,
    report: &mut dyn FnMut(ProgressEvent),
) -> Result<Vec<(Alternative, f64)>, DoctorError> {
    let mut possible = alternatives(job, parts, bound)?;
    let packed = match PackedSome::offer(job, parts, bound, trainer) {
        Err(error) if !matches!(error, DoctorError::Interrupted) => {
            report(ProgressEvent::LeftOut(Change::Pack.name(), chain(&error)));
            None
        }
        // Only an interruption ends the examination. A remedy that cannot be evaluated is reported and left out.
        offered => offered?,
    };
    possible.extend(packed.as_ref().map(|packed| packed.alternative.clone()));
    let mut measured = Vec::new();
    for alternative in possible {
        report(ProgressEvent::Measures(alternative.change.name(), 3.0 * job.seconds));
        let is_other_batch = matches!(alternative.change, Change::BatchSize { .. });
        match alternative.predicted(job, parts, bound, trainer) {
            Ok(predicted) => measured.push((alternative, predicted)),
            Err(DoctorError::Interrupted) => return Err(DoctorError::Interrupted),
            // A step may not accept batches of another size.
            Err(error @ DoctorError::Step(_)) if !is_other_batch => return Err(error),
            Err(error) => report(ProgressEvent::LeftOut(alternative.change.name(), chain(&error))),
        }
    }
    Ok(measured)
}

fn joint(watched: &Watched, log: &LogReport) -> Joint {
    Joint {
        samples_per_second: watched.samples_per_second(),
        stall_share: log.stall_share,
        wait_ms: watched.mean_ms(|batch| batch.wait_ms),
        hand_over_ms: watched.mean_ms(|batch| batch.hand_over_ms),
        step_ms: watched.mean_ms(|batch| batch.step_ms),
        idle_share: watched.idle_share(),
        stalls: Stalls::of(&stall_seconds(watched)),
    }
}

fn stall_seconds(watched: &Watched) -> BTreeMap<&'static str, f64> {
    let before = |cause| watched.before.stall_seconds.get(cause).copied().unwrap_or_default();
    // The start is left out: it happens once, and the watched part of the run begins after it.
    let causes = watched.after.stall_seconds.iter().filter(|(cause, _)| **cause != Phase::Start.name());
    causes.map(|(cause, seconds)| (*cause, (seconds - before(cause)).max(0.0))).collect()
}

/// Whether so much of the budget was in use that more could help.
fn is_pressed(watched: &Watched) -> bool {
    let memory = &watched.after.memory;
    memory.peak_bytes as f64 > PRESSED_SHARE * memory.budget_bytes as f64
}

/// The budget that was tried, and the samples per second with it.
fn with_memory(job: Job<'_>, watched: &Watched, trainer: &mut dyn Trainer) -> Result<(u64, f64), DoctorError> {
    let (plan, seconds) = (job.plan, job.seconds.max(1.0));
    let budget = watched.after.memory.budget_bytes.saturating_mul(MORE_MEMORY);
    let more = varied(plan, plan.source(), plan.ops().to_vec(), |_, config| {
        config.memory_budget = Some(ByteSize(budget));
    })?;
    Ok((budget, watch(Job { plan: &more, seconds, ..job }, trainer)?.samples_per_second()))
}

/// The samples that take much longer than others, slowest first.
fn slow_samples(loader: &Loader) -> Vec<SlowSampleTime> {
    let source = loader.plan().source();
    if source.len() > MAX_SEARCHED {
        return Vec::new();
    }
    let costs: Vec<f64> = loader.costs().iter().map(|cost| cost.as_secs_f64() * 1e3).collect();
    let mean = costs.iter().sum::<f64>() / costs.len().max(1) as f64;
    let mut slow: Vec<(u64, f64)> = (0..).zip(costs).filter(|(_, ms)| *ms > SLOW_RATIO * mean).collect();
    slow.sort_by(|a, b| b.1.total_cmp(&a.1));
    slow.truncate(MAX_NAMED);
    slow.into_iter()
        .map(|(ordinal, ms)| SlowSampleTime { key: source.key(source.id_at(Ordinal(ordinal))).into_owned(), ms })
        .collect()
}
