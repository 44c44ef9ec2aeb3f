//! The parts of a job, each measured alone: the step, reading, preparing.
//!
//! In: a plan and a trainer. Out: the speed of each part without the others.

use std::sync::Arc;
use std::time::Instant;

use feedline_data::op::PlannedOp;
use feedline_data::plan::{CacheConfig, Order, Plan, RunConfig, Settings, Shuffle, Workers};
use feedline_data::source::Source;
use feedline_engine::loader::Loader;
use feedline_engine::metrics::Snapshot;
use feedline_order::Rank;
use serde::Serialize;

use super::core_share::CoreShare;
use super::cores::ThreadTime;
use super::held::{HeldLimits, HeldSource};
use super::skipped::skipped;
use super::watch::{Job, Trainer, Watched, next, watch_alone};
use super::{DoctorError, median};

/// The fraction of the time to fill a cache before it is measured.
const FILL_SHARE: f64 = 0.3;
/// Upper limit of timed steps.
const MAX_STEPS: usize = 50;

/// The cost of one op.
#[derive(Clone, Debug, Serialize)]
pub struct OpPart {
    /// Its name.
    pub op: String,
    /// Milliseconds of a thread for a sample.
    pub ms: f64,
    /// CPU milliseconds of it.
    pub cpu_ms: f64,
    /// Bytes of its result per sample.
    pub bytes: f64,
    /// Whether it runs code in another language.
    pub is_foreign: bool,
}

/// The costs of the parts of a job, each measured alone.
#[derive(Clone, Debug, Serialize)]
pub struct Parts {
    /// Average number of samples in a batch.
    pub batch_size: f64,
    /// Preparer threads.
    pub num_workers: usize,
    /// Cores that they may use.
    pub cores: usize,
    /// The cores that they get beside other processes.
    pub free_cores: f64,
    /// Milliseconds of a step on data that is already there.
    pub step_ms: f64,
    /// Whether stored bytes are on another machine.
    pub is_remote: bool,
    /// Whether bytes are read ahead, so that no thread waits for them.
    pub reads_ahead: bool,
    /// Samples read per second, without preparation. `None` if there is nothing to read.
    pub read_samples_per_second: Option<f64>,
    /// The same with a single thread.
    pub read_alone_samples_per_second: Option<f64>,
    /// Stored bytes read per sample.
    pub read_bytes: f64,
    /// Samples prepared per second, with bytes in memory and all threads busy.
    pub prepare_samples_per_second: f64,
    /// Milliseconds of a thread for that.
    pub prepare_ms: f64,
    /// CPU milliseconds of it: in ops, and around them if the system reports that.
    pub prepare_cpu_ms: f64,
    /// Milliseconds waiting for a core.
    pub core_wait_ms: f64,
    /// The share of cores that threads got, and how much it varied.
    pub core_share: CoreShare,
    /// Each op.
    pub ops: Vec<OpPart>,
}

/// Samples of a batch, on average over an epoch.
pub(super) fn samples_of_a_batch(plan: &Plan) -> f64 {
    let share = plan.share(0);
    share.samples() as f64 / share.batches().max(1) as f64
}

/// A variation of a plan: other samples, ops or settings.
pub(super) fn varied(
    plan: &Plan,
    source: &Arc<dyn Source>,
    ops: Vec<PlannedOp>,
    change: impl FnOnce(&mut Settings, &mut RunConfig),
) -> Result<Arc<Plan>, DoctorError> {
    let (mut settings, mut config) = (plan.settings().clone(), plan.config().clone());
    change(&mut settings, &mut config);
    Ok(Arc::new(Plan::new(Arc::clone(source), ops, settings, config)?))
}

/// Removes settings that a part does not need: orders over all samples, and logs.
fn plain(settings: &mut Settings, config: &mut RunConfig) {
    settings.order = Order::Strict;
    (settings.max_displacement, settings.costs, settings.replay) = (None, None, None);
    config.arrival_log = None;
    config.cache = None;
}

impl Parts {
    /// Measures all parts, each for about the duration of the job.
    pub(super) fn measure(job: Job<'_>, trainer: &mut dyn Trainer) -> Result<Self, DoctorError> {
        let step_ms = step(job, trainer)?;
        Self::measure_with_step(job, step_ms, trainer)
    }

    /// Measures all parts, with a known duration of the step.
    pub(crate) fn measure_with_step(
        job: Job<'_>,
        step_ms: f64,
        trainer: &mut dyn Trainer,
    ) -> Result<Self, DoctorError> {
        let Job { plan, seconds, .. } = job;
        let source = plan.source();
        let is_remote = source.is_remote() || source.peer().is_some();
        let reads_ahead = is_remote || matches!(plan.settings().shuffle, Shuffle::Reservoir(_));
        let read = |workers: Option<usize>, trainer: &mut dyn Trainer| {
            let reading = varied(plan, source, skipped(plan), |settings, config| {
                plain(settings, config);
                config.num_workers = workers.map_or(config.num_workers, Workers::Count);
            })?;
            watch_alone(Job { plan: &reading, ..job }, trainer)
        };
        let reading = read(None, trainer)?;
        let has_reads = read_bytes(&reading) > 0.0;
        // A single thread shows the latency of a read. With read-ahead no thread waits for one.
        let alone = if has_reads && !reads_ahead { Some(read(Some(1), trainer)?) } else { None };
        // Preparation is measured on samples in memory, so that no read limits it.
        let held = HeldSource::read(source, plan.loaded(), HeldLimits { seconds, samples: u64::MAX }, trainer)?;
        let preparing = prepare(job, None, &held, trainer)?;
        let ops = ops(plan, &preparing.after);
        let prepare_ms = 1e3 * preparing.thread_seconds_a_sample();
        let num_workers = preparing.after.num_workers.max(1);
        let (ops_cpu, cores) = (ops.iter().map(|op| op.cpu_ms).sum(), Workers::Auto.count());
        let time = preparing
            .thread_time(prepare_ms)
            .unwrap_or_else(|| ThreadTime::modelled(prepare_ms, ops_cpu, num_workers, cores));
        Ok(Self {
            batch_size: samples_of_a_batch(plan),
            num_workers,
            cores,
            free_cores: time.free_cores(num_workers, cores),
            step_ms,
            is_remote,
            reads_ahead,
            read_samples_per_second: has_reads.then(|| reading.samples_per_second()),
            read_alone_samples_per_second: alone.map(|alone| alone.samples_per_second()),
            read_bytes: read_bytes(&reading),
            // All threads together: workers divided by the time of one thread per sample.
            prepare_samples_per_second: 1e3 * num_workers as f64 / prepare_ms.max(1e-6),
            prepare_ms,
            prepare_cpu_ms: time.cpu,
            core_wait_ms: time.core_wait,
            core_share: preparing.core_share.unwrap_or_else(|| CoreShare::steady(time.cpu, time.core_wait)),
            ops,
        })
    }

    /// Measures the parts with the plan's cache: some samples are cached, then all come from the cache.
    pub(super) fn measure_cached(&self, job: Job<'_>, trainer: &mut dyn Trainer) -> Result<Self, DoctorError> {
        let Job { plan, seconds, .. } = job;
        let some = (self.prepare_samples_per_second * seconds * FILL_SHARE) as u64;
        let held = HeldSource::read(plan.source(), plan.loaded(), HeldLimits { seconds, samples: some }, trainer)?;
        let cache = plan.config().cache.clone();
        let cut = cache.as_ref().and_then(|cache| cache.form).map_or(0, |form| plan.cut_of(form).0);
        let preparing = prepare(Job { seconds: 2.0 * seconds, ..job }, cache, &held, trainer)?;
        let prepare_ms = 1e3 * preparing.thread_seconds_a_sample();
        // Only between the snapshots: the cache is filled before the first of them, during the warm-up.
        let spent = preparing.before.ops.iter().zip(&preparing.after.ops);
        let cpu = spent.map(|(before, after)| after.cpu_seconds - before.cpu_seconds).sum::<f64>();
        let samples = preparing.after.samples - preparing.before.samples;
        let ops_cpu = 1e3 * cpu.max(0.0) / samples.max(1) as f64;
        let time = preparing
            .thread_time(prepare_ms)
            .unwrap_or_else(|| ThreadTime::modelled(prepare_ms, ops_cpu, self.num_workers, self.cores));
        Ok(Self {
            prepare_samples_per_second: 1e3 * self.num_workers as f64 / prepare_ms.max(1e-6),
            prepare_ms,
            prepare_cpu_ms: time.cpu,
            core_wait_ms: time.core_wait,
            core_share: preparing.core_share.unwrap_or_else(|| CoreShare::steady(time.cpu, time.core_wait)),
            ..self.with_cached(cut)
        })
    }
}

/// Prepares samples from memory as fast as possible.
fn prepare(
    job: Job<'_>,
    cache: Option<CacheConfig>,
    held: &Arc<dyn Source>,
    trainer: &mut dyn Trainer,
) -> Result<Watched, DoctorError> {
    let prepared = varied(job.plan, held, job.plan.ops().to_vec(), |settings, config| {
        plain(settings, config);
        config.cache = cache;
        // The samples in memory are a subset, for which samplers, ranks and full batches make no sense.
        (settings.shuffle, settings.sampler, settings.drop_last) = (Shuffle::Never, None, false);
        config.rank = Rank::ALONE;
    })?;
    watch_alone(Job { plan: &prepared, ..job }, trainer)
}

/// Stored bytes of a sample.
fn read_bytes(reading: &Watched) -> f64 {
    let store = &reading.after.store;
    // Fewer bytes may come over the network than samples contain.
    let bytes = if store.bytes_received > 0 { store.bytes_received } else { store.bytes };
    bytes as f64 / reading.after.samples.max(1) as f64
}

/// The counted cost of each op of a plan.
pub(super) fn ops(plan: &Plan, snapshot: &Snapshot) -> Vec<OpPart> {
    let part = |(planned, op): (&PlannedOp, &feedline_engine::metrics::OpSnapshot)| {
        let samples = op.samples.max(1) as f64;
        OpPart {
            op: op.name.clone(),
            ms: 1e3 * op.busy_seconds / samples,
            cpu_ms: 1e3 * op.cpu_seconds / samples,
            bytes: op.bytes_out as f64 / samples,
            is_foreign: planned.op().is_foreign(),
        }
    };
    plan.ops().iter().zip(&snapshot.ops).map(part).collect()
}

/// The median duration of a step on a batch that is already there.
pub(super) fn step(job: Job<'_>, trainer: &mut dyn Trainer) -> Result<f64, DoctorError> {
    let loader = Loader::new(Arc::clone(job.plan), job.machine);
    let iteration = loader.begin()?;
    let Some((batch, ..)) = next(&loader, iteration, trainer)? else { return Err(DoctorError::NoBatches) };
    // Nothing is prepared while steps are timed.
    loader.close();
    trainer.receive(batch)?;
    let (start, mut times) = (Instant::now(), Vec::new());
    while times.len() < MAX_STEPS && (times.len() < 2 || start.elapsed().as_secs_f64() < job.seconds) {
        trainer.check()?;
        let began = Instant::now();
        trainer.step()?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    // The first step includes set-up.
    let times = &mut times[1..];
    times.sort_by(f64::total_cmp);
    Ok(median(times))
}
