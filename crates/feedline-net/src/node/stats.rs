//! The metrics of a node, for `feedline top`, the page and Prometheus.
//!
//! In: the counters of productions and jobs. Out: plain data, and Prometheus metrics.

use std::collections::BTreeMap;

use serde::Serialize;

use super::runs::RunStats;
use crate::http::{Exposition, Numbers};

/// A node in numbers.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct NodeStats {
    pub seconds: f64,
    pub jobs_attached_total: u64,
    /// Upper limit of bytes for all segments.
    pub memory_bytes: u64,
    /// Bytes in use.
    pub live_bytes: u64,
    pub runs: Vec<RunStats>,
    pub jobs: Vec<JobStats>,
}

/// The metrics of one job.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct JobStats {
    /// Its number at the node. A process may have several jobs.
    pub job: u64,
    pub process: u32,
    /// The key of its production.
    pub key: String,
    pub attached_seconds: f64,
    pub epoch: u64,
    pub segments: u64,
    pub samples: u64,
    /// Total waiting time, including a current wait.
    pub waited_seconds: f64,
    /// Waiting time by cause, without a current wait.
    pub stall_seconds: BTreeMap<&'static str, f64>,
}

/// The key of a run as it is written.
pub(super) fn key_text(key: u128) -> String {
    format!("{key:032x}")
}

impl Numbers for NodeStats {
    fn exposition(&self) -> Exposition {
        let mut text = Exposition::default();
        text.gauge("feedline_node_uptime_seconds", "Seconds since the start.", self.seconds);
        text.gauge("feedline_node_memory_limit_bytes", "Upper limit of the memory of segments.", self.memory_bytes);
        text.gauge("feedline_node_memory_bytes", "Memory of segments.", self.live_bytes);
        text.gauge("feedline_node_runs", "Runs: productions of samples that jobs share.", self.runs.len());
        text.gauge("feedline_node_jobs", "Jobs now.", self.jobs.len());
        text.counter("feedline_node_jobs_attached_total", "Jobs since the start.", self.jobs_attached_total);
        self.write_runs(&mut text);
        self.write_jobs(&mut text);
        text
    }
}

impl NodeStats {
    fn write_runs(&self, text: &mut Exposition) {
        let info = |run: &RunStats| ([run.key.clone(), run.folder.clone(), run.ops.join(", ")], 1_u64);
        let labels = ["run", "folder", "ops"];
        text.gauges("feedline_node_run_info", "The folder and the ops of a run.", labels, self.runs.iter().map(info));
        let mut gauge = |name: &'static str, help: &'static str, value: fn(&RunStats) -> f64| {
            let values = self.runs.iter().map(|run| ([run.key.as_str()], value(run)));
            text.gauges(name, help, ["run"], values);
        };
        gauge("feedline_node_run_jobs", "Jobs that share a run.", |run| run.carousel.jobs as f64);
        gauge("feedline_node_run_memory_bytes", "Memory of live segments.", |run| run.carousel.live_bytes as f64);
        gauge("feedline_node_run_live_segments", "Live segments.", |run| run.carousel.live_segments as f64);
        gauge("feedline_node_run_workers", "Threads that prepare samples.", |run| {
            run.carousel.engine.num_workers as f64
        });
        gauge("feedline_node_run_shared_ratio", "Samples delivered for each one produced.", |run| {
            run.carousel.leased_per_produced
        });
        let mut counter = |name: &'static str, help: &'static str, value: fn(&RunStats) -> u64| {
            let values = self.runs.iter().map(|run| ([run.key.as_str()], value(run)));
            text.counters(name, help, ["run"], values);
        };
        counter("feedline_node_produced_samples_total", "Samples prepared.", |run| run.carousel.produced_samples);
        counter("feedline_node_delivered_samples_total", "Samples delivered to jobs.", |run| {
            run.carousel.leased_samples
        });
        counter("feedline_node_read_bytes_total", "Bytes read.", |run| run.carousel.engine.store.bytes);
        counter("feedline_node_received_bytes_total", "Bytes received over the network.", |run| {
            run.carousel.engine.store.bytes_received
        });
        let stalls = self.runs.iter().flat_map(|run| {
            let of_run = run.carousel.engine.stall_seconds.iter();
            of_run.map(|(cause, seconds)| ([run.key.as_str(), cause], *seconds))
        });
        text.counters(
            "feedline_node_stall_seconds_total",
            "Time that jobs waited, summed over all jobs of a run.",
            ["run", "cause"],
            stalls,
        );
    }

    fn write_jobs(&self, text: &mut Exposition) {
        const LABELS: [&str; 3] = ["run", "job", "process"];
        let of_jobs = |value: fn(&JobStats) -> f64| {
            let labels = |job: &JobStats| [job.key.clone(), job.job.to_string(), job.process.to_string()];
            self.jobs.iter().map(move |job| (labels(job), value(job)))
        };
        text.gauges("feedline_node_job_epoch", "The epoch of a job.", LABELS, of_jobs(|job| job.epoch as f64));
        text.counters(
            "feedline_node_job_samples_total",
            "Samples delivered to a job.",
            LABELS,
            of_jobs(|job| job.samples as f64),
        );
        text.counters(
            "feedline_node_job_waited_seconds_total",
            "Time that a job waited.",
            LABELS,
            of_jobs(|job| job.waited_seconds),
        );
    }
}
