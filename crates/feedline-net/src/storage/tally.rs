//! The metrics of a server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use feedline_memory::Mutex;
use serde::Serialize;

use crate::http::{Exposition, Numbers};

/// The counters of a running server.
#[derive(Debug, Default)]
pub(super) struct ServerTally {
    /// Requests by kind, and how many of them failed.
    requests: Mutex<BTreeMap<&'static str, (u64, u64)>>,
    pub connections: AtomicU64,
    pub refused: AtomicU64,
    pub content_bytes: AtomicU64,
    pub sent_bytes: AtomicU64,
}

/// Whether a request succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Failed,
}

impl ServerTally {
    /// Counts a request.
    pub(super) fn add_request(&self, kind: &'static str, outcome: Outcome) {
        // Both numbers change under one lock, so failures never exceed requests.
        let mut requests = self.requests.lock();
        let (all, failed) = requests.entry(kind).or_default();
        *all += 1;
        *failed += u64::from(outcome == Outcome::Failed);
    }

    /// The counts.
    pub(super) fn stats(&self) -> ServerStats {
        let requests = self.requests.lock();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServerStats {
            requests: requests.iter().map(|(kind, (all, _))| (*kind, *all)).collect(),
            failures: requests.iter().map(|(kind, (_, failed))| (*kind, *failed)).collect(),
            connections_total: count(&self.connections),
            refused: count(&self.refused),
            content_bytes: count(&self.content_bytes),
            sent_bytes: count(&self.sent_bytes),
            ..ServerStats::default()
        }
    }
}

/// The metrics of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServerStats {
    /// Time since it was started.
    pub uptime_seconds: f64,
    /// Connections now.
    pub connections: usize,
    /// Number of connections since the start, including rejected ones.
    pub connections_total: u64,
    /// Number of rejected connections: wrong version, no token, no TLS, no handshake in time, or too many.
    pub refused: u64,
    /// Bytes of replies in preparation, queued or being sent.
    pub reply_bytes: u64,
    /// Requests by kind.
    pub requests: BTreeMap<&'static str, u64>,
    /// Number of failed requests by kind.
    pub failures: BTreeMap<&'static str, u64>,
    /// Bytes of files and samples in replies.
    pub content_bytes: u64,
    /// Bytes of replies sent, before encryption.
    pub sent_bytes: u64,
    /// CPU time used for clients.
    pub cpu_seconds: f64,
    /// The limit of cores.
    pub cpus: f64,
}

impl Numbers for ServerStats {
    fn exposition(&self) -> Exposition {
        let mut text = Exposition::default();
        text.gauge("feedline_storage_uptime_seconds", "Seconds since the start.", self.uptime_seconds);
        text.gauge("feedline_storage_connections", "Connections now.", self.connections);
        text.counter("feedline_storage_connections_total", "Connections since the start.", self.connections_total);
        text.counter("feedline_storage_refused_total", "Rejected connections.", self.refused);
        text.gauge(
            "feedline_storage_reply_bytes",
            "Memory of replies that are in preparation, queued or being sent.",
            self.reply_bytes,
        );
        let mut by_kind = |name: &'static str, help: &'static str, counts: &BTreeMap<&'static str, u64>| {
            text.counters(name, help, ["kind"], counts.iter().map(|(kind, count)| ([*kind], *count)));
        };
        by_kind("feedline_storage_requests_total", "Requests.", &self.requests);
        by_kind("feedline_storage_failures_total", "Requests that failed.", &self.failures);
        text.counter(
            "feedline_storage_content_bytes_total",
            "Bytes of files and samples in replies.",
            self.content_bytes,
        );
        text.counter("feedline_storage_sent_bytes_total", "Bytes of replies sent.", self.sent_bytes);
        text.counter("feedline_storage_cpu_seconds_total", "CPU time used.", self.cpu_seconds);
        text.gauge("feedline_storage_cpus", "Upper limit of cores.", self.cpus);
        text
    }
}
