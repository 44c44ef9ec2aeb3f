//! Finds the bottleneck of another loader, from the times of its batches and the system's data about its processes.
//!
//! In: a batch log, the consumer's thread and the worker processes. Out: a [`ForeignReport`].

use serde::Serialize;

use super::evidence::{ConsumerThread, Outside, WorkerProcesses};
use super::log::{BatchTime, LoadedBy, LogReport};
use super::verdict::Bound;

/// The report of a run with another loader.
#[derive(Clone, Debug, Serialize)]
pub struct ForeignReport {
    /// The bottleneck. `None` if it cannot be seen from outside.
    pub bound: Option<Bound>,
    /// Samples per second.
    pub measured_samples_per_second: f64,
    /// The fraction of the time in which the consumer waited for batches.
    pub stall_share: f64,
    /// The batch log.
    pub log: LogReport,
}

impl ForeignReport {
    /// Analyses a log. Without `workers` the consumer's own thread loads.
    pub fn new(log: &[BatchTime], consumer: ConsumerThread, workers: Option<WorkerProcesses>) -> Self {
        let report = LogReport::new(log, LoadedBy::Foreign);
        let waited = log.iter().map(|batch| batch.wait_ms).sum::<f64>() / 1e3;
        let LogReport { stall_share, samples_per_second, ref anomalies, .. } = report;
        let bound = Outside { stall_share, anomalies, waited, consumer, workers }.bound();
        Self { bound, measured_samples_per_second: samples_per_second, stall_share, log: report }
    }
}
