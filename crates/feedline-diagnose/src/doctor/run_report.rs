//! Finds the bottleneck of a run that was not examined, from its counters.
//!
//! In: the snapshot and the batch log of a run. Out: a [`RunReport`]. No part was measured alone, so the speeds of reading and
//! preparing are estimated from the time of threads. An examination is more reliable.

use std::collections::BTreeMap;

use feedline_data::plan::{Plan, Shuffle, Workers};
use feedline_engine::metrics::Snapshot;
use serde::Serialize;

use super::core_share::CoreShare;
use super::cores::ThreadTime;
use super::evidence::{CountedRun, JobProfile, Joint, Stalls};
use super::log::{BatchTime, LoadedBy, LogReport};
use super::parts::{Parts, ops, samples_of_a_batch};
use super::remedy::{Case, Remedy};
use super::verdict::Bound;

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The bottleneck.
    pub bound: Bound,
    /// Samples per second, without the first batch.
    pub measured_samples_per_second: f64,
    /// The fraction of the time in which the trainer waited.
    pub stall_share: f64,
    /// Seconds of waiting, by cause.
    pub stall_seconds: BTreeMap<&'static str, f64>,
    /// The fraction of the threads' time without work.
    pub idle_share: f64,
    /// Remedies, the best first, as far as they can be derived.
    pub remedies: Vec<Remedy>,
    /// The batch log.
    pub log: LogReport,
}

impl RunReport {
    /// Analyses a run of `plan` over `seconds`. The log may cover only its last part. Without threads of its own, its samples come
    /// from a node.
    pub fn new(plan: &Plan, snapshot: &Snapshot, log: &[BatchTime], seconds: f64) -> Self {
        // The first batch includes the start of the run.
        let log = log.get(1..).filter(|rest| !rest.is_empty()).unwrap_or(log);
        let report = LogReport::new(log, LoadedBy::Feedline);
        let (stall_share, rate) = (report.stall_share, report.samples_per_second);
        // Total time of all threads. Never zero, because it is a divisor.
        let thread_seconds = seconds.max(1e-9) * snapshot.num_workers.max(1) as f64;
        let idle_share = (snapshot.idle_seconds / thread_seconds).clamp(0.0, 1.0);
        let parts = parts(plan, snapshot, log);
        let mean = |of: fn(&BatchTime) -> f64| log.iter().map(of).sum::<f64>() / log.len().max(1) as f64;
        let joint = Joint {
            samples_per_second: rate,
            stall_share,
            wait_ms: mean(|batch| batch.wait_ms),
            hand_over_ms: mean(|batch| batch.hand_over_ms),
            step_ms: mean(|batch| batch.step_ms),
            idle_share,
            stalls: Stalls::of(&snapshot.stall_seconds),
        };
        let counted = CountedRun {
            profile: JobProfile::from(&parts),
            joint,
            has_threads: snapshot.num_workers > 0,
            memory_wait_share: snapshot.memory_wait_seconds / thread_seconds,
            memory_peak_share: snapshot.memory.peak_bytes as f64 / snapshot.memory.budget_bytes as f64,
        };
        let bound = counted.bound();
        let case = Case { plan, parts: &parts, bound, measured: rate, with_memory: None, alternatives: &[] };
        Self {
            bound,
            measured_samples_per_second: rate,
            stall_share,
            stall_seconds: snapshot.stall_seconds.clone(),
            idle_share,
            // With a node, or if the step is the bottleneck, no setting of this plan helps.
            remedies: if bound == Bound::Step || snapshot.num_workers == 0 { Vec::new() } else { case.remedies() },
            log: report,
        }
    }
}

/// The parts of a run, as far as its counters show them.
fn parts(plan: &Plan, snapshot: &Snapshot, log: &[BatchTime]) -> Parts {
    let ops = ops(plan, snapshot);
    let source = plan.source();
    let is_remote = source.is_remote() || source.peer().is_some();
    // Samples from a cache skip the first ops, so reads are divided by the samples that the first op processed.
    let prepared = snapshot.ops.first().map_or(snapshot.samples, |op| op.samples).max(1) as f64;
    let prepare_ms: f64 = ops.iter().map(|op| op.ms).sum();
    let read_ms = 1e3 * snapshot.store.busy_seconds / prepared;
    let (num_workers, cores) = (snapshot.num_workers.max(1), Workers::Auto.count());
    let prepare_cpu_ms = ops.iter().map(|op| op.cpu_ms).sum();
    // With a cache, later ops have processed more samples than earlier ones.
    let done = snapshot.ops.iter().map(|op| op.samples).max().unwrap_or(snapshot.samples).max(1) as f64;
    let all = prepare_ms + read_ms;
    let time = if snapshot.core_seconds > 0.0 {
        let [cpu, core_wait] = [snapshot.core_seconds, snapshot.core_wait_seconds].map(|seconds| 1e3 * seconds / done);
        ThreadTime { all, cpu, core_wait }
    } else {
        ThreadTime::modelled(all, prepare_cpu_ms, num_workers, cores)
    };
    // Ops get their share of the waits for cores.
    let of_ops = if all > 0.0 { time.core_wait * prepare_ms / all } else { 0.0 };
    Parts {
        batch_size: samples_of_a_batch(plan),
        num_workers,
        cores,
        free_cores: time.free_cores(num_workers, cores),
        step_ms: log.iter().map(|batch| batch.step_ms).sum::<f64>() / log.len().max(1) as f64,
        is_remote,
        reads_ahead: is_remote || matches!(plan.settings().shuffle, Shuffle::Reservoir(_)),
        // The limit of the store is unknown: it was never read alone.
        read_samples_per_second: None,
        read_alone_samples_per_second: (read_ms > 0.0).then(|| 1e3 / read_ms),
        read_bytes: snapshot.store.bytes as f64 / prepared,
        prepare_samples_per_second: if prepare_ms > 0.0 { 1e3 * num_workers as f64 / prepare_ms } else { f64::MAX },
        prepare_ms,
        prepare_cpu_ms,
        core_wait_ms: of_ops.min((prepare_ms - prepare_cpu_ms).max(0.0)),
        core_share: CoreShare::default(),
        ops,
    }
}
