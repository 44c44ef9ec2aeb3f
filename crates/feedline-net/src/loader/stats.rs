//! The metrics of a loader: its snapshot, plan and rank.
//!
//! In: a loader. Out: plain data, and Prometheus metrics. Every metric is derived from the snapshot.

use feedline_data::plan::Plan;
use feedline_engine::loader::{GivenLoader, Loader};
use feedline_engine::metrics::{QueueSnapshot, Snapshot, StoreSnapshot};
use feedline_order::Epoch;
use serde::Serialize;

use crate::http::{Exposition, Numbers};

/// A loader whose metrics can be served.
pub trait Observed: Send + Sync {
    /// Its plan.
    fn plan(&self) -> &Plan;

    /// The epoch of the next iteration. For batches that the caller chooses: the epoch of the last request.
    fn epoch(&self) -> Epoch;

    /// All counters.
    fn snapshot(&self) -> Snapshot;
}

impl Observed for Loader {
    fn plan(&self) -> &Plan {
        self.plan()
    }

    fn epoch(&self) -> Epoch {
        self.upcoming_epoch()
    }

    fn snapshot(&self) -> Snapshot {
        self.snapshot()
    }
}

impl Observed for GivenLoader {
    fn plan(&self) -> &Plan {
        self.plan()
    }

    fn epoch(&self) -> Epoch {
        self.epoch()
    }

    fn snapshot(&self) -> Snapshot {
        self.snapshot()
    }
}

/// A loader in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct LoaderStats {
    /// The plan's fingerprint of samples and their order. It is the same on all ranks.
    pub plan: String,
    /// The rank of the process.
    pub rank: u32,
    /// The number of ranks.
    pub world_size: u32,
    /// The epoch of the next iteration.
    pub epoch: u64,
    /// The counters.
    #[serde(flatten)]
    pub snapshot: Snapshot,
}

impl LoaderStats {
    /// The current metrics of a loader.
    pub fn of(loader: &dyn Observed) -> Self {
        let (plan, rank) = (loader.plan(), loader.plan().config().rank);
        Self {
            plan: plan.fingerprints().order.to_string(),
            rank: rank.rank,
            world_size: rank.world,
            epoch: loader.epoch().0,
            snapshot: loader.snapshot(),
        }
    }
}

impl Numbers for LoaderStats {
    fn exposition(&self) -> Exposition {
        let mut text = Exposition::labelled(vec![("plan", self.plan.clone()), ("rank", self.rank.to_string())]);
        let ops: Vec<&str> = self.snapshot.ops.iter().map(|op| op.name.as_str()).collect();
        // An info metric: its value is always 1, and its labels carry the text (a Prometheus convention).
        let info = ([ops.join(", "), self.world_size.to_string(), env!("CARGO_PKG_VERSION").to_owned()], 1_u64);
        text.gauges(
            "feedline_loader_info",
            "The ops, ranks and version of the loader.",
            ["ops", "world_size", "version"],
            [info],
        );
        text.gauge("feedline_loader_epoch", "The epoch that the next iteration runs.", self.epoch);
        write_delivered(&self.snapshot, &mut text);
        write_stages(&self.snapshot, &mut text);
        write_store(&self.snapshot.store, &mut text);
        write_queue(&self.snapshot.queue, &mut text);
        write_memory(&self.snapshot, &mut text);
        write_costs(&self.snapshot, &mut text);
        write_caches(&self.snapshot, &mut text);
        text
    }
}

/// The delivered batches, and the waits of the consumer.
fn write_delivered(snapshot: &Snapshot, text: &mut Exposition) {
    text.counter("feedline_loader_batches_total", "Batches delivered.", snapshot.batches);
    text.counter("feedline_loader_samples_total", "Samples delivered.", snapshot.samples);
    text.counter("feedline_loader_delivered_bytes_total", "Bytes of batches delivered.", snapshot.content_bytes);
    let substituted = snapshot.substituted;
    text.counter("feedline_loader_substituted_samples_total", "Bad samples that were replaced.", substituted);
    let stalls = snapshot.stall_seconds.iter().map(|(cause, seconds)| ([*cause], *seconds));
    text.counters("feedline_loader_stall_seconds_total", "Time that the consumer waited, by cause.", ["cause"], stalls);
}

/// Loading and each op. An op may occur twice in a plan, so its number is a label.
fn write_stages(snapshot: &Snapshot, text: &mut Exposition) {
    const LABELS: [&str; 2] = ["op", "number"];
    text.gauge("feedline_loader_workers", "Threads that prepare samples.", snapshot.num_workers);
    let (idle, memory) = (snapshot.idle_seconds, snapshot.memory_wait_seconds);
    text.counter("feedline_loader_idle_seconds_total", "Time in which threads had nothing to do.", idle);
    text.counter("feedline_loader_memory_wait_seconds_total", "Time that threads waited for memory.", memory);
    text.counter("feedline_loader_core_seconds_total", "CPU time of threads.", snapshot.core_seconds);
    text.counter(
        "feedline_loader_core_wait_seconds_total",
        "Time that runnable threads waited for a free core.",
        snapshot.core_wait_seconds,
    );
    let loading = snapshot.loading;
    text.counter(
        "feedline_loader_loading_busy_seconds_total",
        "Time that threads spent loading samples, before the first op.",
        loading.busy_seconds,
    );
    text.counter("feedline_loader_loaded_samples_total", "Samples loaded.", loading.samples);
    // A closure, because four metrics use the same labels.
    let labels = || snapshot.ops.iter().enumerate().map(|(number, op)| [op.name.clone(), number.to_string()]);
    let (busy, cpu, bytes, samples) = (
        snapshot.ops.iter().map(|op| op.busy_seconds),
        snapshot.ops.iter().map(|op| op.cpu_seconds),
        snapshot.ops.iter().map(|op| op.bytes_out),
        snapshot.ops.iter().map(|op| op.samples),
    );
    text.counters(
        "feedline_loader_op_busy_seconds_total",
        "Time that threads spent in an op.",
        LABELS,
        labels().zip(busy),
    );
    text.counters(
        "feedline_loader_op_cpu_seconds_total",
        "CPU time of an op, extrapolated from the samples on which it was measured.",
        LABELS,
        labels().zip(cpu),
    );
    text.counters("feedline_loader_op_out_bytes_total", "Bytes that an op produced.", LABELS, labels().zip(bytes));
    text.counters("feedline_loader_op_samples_total", "Samples that an op processed.", LABELS, labels().zip(samples));
}

fn write_store(store: &StoreSnapshot, text: &mut Exposition) {
    text.counter("feedline_loader_read_bytes_total", "Bytes of samples that were read.", store.bytes);
    text.counter("feedline_loader_reads_total", "Reads.", store.reads);
    text.counter("feedline_loader_read_busy_seconds_total", "Time that threads spent reading.", store.busy_seconds);
    text.counter("feedline_loader_received_bytes_total", "Bytes received over the network.", store.bytes_received);
    text.counter("feedline_loader_requests_total", "Requests over the network, including retries.", store.requests);
    text.counter("feedline_loader_retries_total", "Retries of requests.", store.retries);
    text.counters(
        "feedline_loader_form_samples_total",
        "Samples by the form in which a storage server sent them.",
        ["form"],
        store.candidates.iter().map(|(form, samples)| ([form.as_str()], *samples)),
    );
}

fn write_queue(queue: &QueueSnapshot, text: &mut Exposition) {
    text.gauge("feedline_loader_queue_ready_batches", "Batches ready to be taken.", queue.ready_batches);
    text.gauge("feedline_loader_queue_open_batches", "Batches that are in preparation or ready.", queue.open_batches);
    text.gauge("feedline_loader_queue_limit_batches", "Upper limit of open batches.", queue.limit_batches);
    text.gauge("feedline_loader_queue_waiting_samples", "Samples that wait for a thread.", queue.waiting_samples);
    text.gauge("feedline_loader_queue_early_samples", "Slow samples that started early.", queue.early_samples);
}

fn write_memory(snapshot: &Snapshot, text: &mut Exposition) {
    let memory = &snapshot.memory;
    text.gauge("feedline_loader_memory_bytes", "Memory of samples in preparation.", memory.used_bytes);
    text.gauge(
        "feedline_loader_memory_limit_bytes",
        "Upper limit of the memory of samples in preparation.",
        memory.budget_bytes,
    );
    text.gauge(
        "feedline_loader_memory_peak_bytes",
        "Highest memory of samples in preparation so far.",
        memory.peak_bytes,
    );
    if let Some(reservoir) = &snapshot.reservoir {
        text.gauge("feedline_loader_reservoir_samples", "Samples that a reservoir holds.", reservoir.samples);
        text.gauge("feedline_loader_reservoir_bytes", "Bytes of the samples that a reservoir holds.", reservoir.bytes);
    }
}

/// The quality of cost predictions. The error is the ratio of two sums.
fn write_costs(snapshot: &Snapshot, text: &mut Exposition) {
    let costs = snapshot.costs;
    text.counter(
        "feedline_loader_cost_compared_samples_total",
        "Samples whose cost was compared with its prediction.",
        costs.samples,
    );
    text.counter(
        "feedline_loader_cost_predicted_seconds_total",
        "Predicted cost of the compared samples.",
        costs.predicted_seconds,
    );
    text.counter(
        "feedline_loader_cost_taken_seconds_total",
        "Measured cost of the compared samples.",
        costs.taken_seconds,
    );
    text.counter(
        "feedline_loader_cost_error_seconds_total",
        "Sum of the absolute prediction errors.",
        costs.error_seconds,
    );
}

/// Caches: samples and seek indexes.
fn write_caches(snapshot: &Snapshot, text: &mut Exposition) {
    let (cache, seek) = (&snapshot.cache, &snapshot.seek_index);
    text.counter("feedline_loader_cache_hits_total", "Samples that came from the cache.", cache.hits);
    text.counter("feedline_loader_cache_misses_total", "Samples that were not in the cache.", cache.misses);
    text.gauge("feedline_loader_cache_memory_bytes", "Memory of cached samples.", cache.ram_bytes);
    text.counter("feedline_loader_cache_written_bytes_total", "Bytes written to the disk cache.", cache.written_bytes);
    text.counter("feedline_loader_seek_indexes_made_total", "Seek indexes built.", seek.made);
    text.counter(
        "feedline_loader_seek_index_busy_seconds_total",
        "Time that threads spent building seek indexes.",
        seek.busy_seconds,
    );
    text.counter(
        "feedline_loader_seek_index_used_samples_total",
        "Samples read in part, with a seek index.",
        seek.used,
    );
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use feedline_data::testing::open;
    use feedline_engine::loader::Loader;
    use feedline_engine::machine::Machine;
    use feedline_engine::testing::collect;

    use super::*;

    const PLAN: &str = "batch_size = 4\n[source]\nkind = \"synthetic\"\nn = 10\nshape = [8, 8, 3]\n\
                        [[ops]]\nop = \"RandomCrop\"\non = \"data\"\nsize = 6\n\
                        [[ops]]\nop = \"RandomCrop\"\non = \"data\"\nsize = 4\n";

    #[test]
    fn every_series_is_there_once_and_names_say_unit_and_kind() {
        let loader = Loader::new(open(PLAN).unwrap(), &Machine::default());
        assert_eq!(collect(&loader).unwrap().len(), 3);
        let stats = LoaderStats::of(&loader);
        let exposition = stats.exposition();
        let text = exposition.text();
        let series: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.rsplit_once(' '))
            .map(|(series, _)| series)
            .collect();
        assert_eq!(series.iter().collect::<BTreeSet<_>>().len(), series.len(), "{text}");
        assert!(series.iter().all(|series| series.contains(&format!("{{plan=\"{}\",rank=\"0\"", stats.plan))));
        for line in ["feedline_loader_samples_total{", "op=\"RandomCrop\",number=\"1\"} ", "cause=\"memory\"}"] {
            assert!(text.contains(line), "{line} in {text}");
        }
        // Samples of the next epoch may have been started.
        assert!(stats.snapshot.ops[1].samples >= 10);
        let names: BTreeSet<&str> = exposition.metrics().iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), exposition.metrics().len(), "no metric is written twice");
    }

    #[test]
    fn the_document_is_the_snapshot_and_who_it_is_of() {
        let plan = open(PLAN).unwrap();
        let loader = Loader::new(Arc::clone(&plan), &Machine::default());
        let document = serde_json::to_value(LoaderStats::of(&loader)).unwrap();
        let snapshot = serde_json::to_value(loader.snapshot()).unwrap();
        for (name, value) in snapshot.as_object().unwrap() {
            assert_eq!(document[name], *value, "{name}");
        }
        assert_eq!(document["plan"], plan.fingerprints().order.to_string());
    }
}
