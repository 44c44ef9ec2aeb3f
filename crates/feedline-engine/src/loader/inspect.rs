//! Reports of a loader: counters, costs, timelines, order.

use std::path::Path;
use std::time::{Duration, Instant};

use feedline_data::cost::CostFile;
use feedline_data::op::WorkHint;
use feedline_order::{Epoch, Occurrence, OrderReport, Ordinal, SampleRequest};

use super::Loader;
use crate::metrics::{Snapshot, Timeline};
use crate::offload::OffloadReport;
use crate::run::RunContext;

impl Loader {
    /// What a storage server does for this loader, and why, if there is one.
    pub fn offload(&self) -> Option<OffloadReport> {
        self.supply.as_ref()?.offload()
    }

    /// All counters.
    pub fn snapshot(&self) -> Snapshot {
        let run = self.lock().run.clone();
        let queue = run.as_ref().map(|run| run.queue()).unwrap_or_default();
        let unstarted = || match &self.supply {
            Some(_) => self.plan.config().num_workers.resolve(&self.machine.share),
            None => 0,
        };
        let workers = run.map_or_else(unstarted, |run| run.workers());
        let RunContext { metrics, budget, .. } = &self.context;
        let reservoir = self.supply.as_ref().and_then(|supply| supply.reservoir());
        Snapshot { reservoir, ..Snapshot::new(metrics, workers, queue, budget.snapshot()) }
    }

    /// The predicted cost of each sample in source order, for the epoch of the next iteration.
    pub fn costs(&self) -> Vec<Duration> {
        let (epoch, source) = (self.upcoming_epoch(), self.plan.source());
        let request = |ordinal| SampleRequest { id: source.id_at(ordinal), epoch, occurrence: Occurrence(0) };
        let work_hint = |request| self.supply.as_ref().map_or(WorkHint::Usual, |supply| supply.work_hint(request));
        let predict = |request| self.context.costs.predict(&*self.plan, request, work_hint(request));
        (0..source.len()).map(Ordinal).map(|ordinal| predict(request(ordinal))).collect()
    }

    /// Starts to record the cost of each sample of an epoch.
    pub fn watch_costs(&self, epoch: Epoch) {
        self.context.costs.watch(&*self.plan, epoch);
    }

    /// The recorded costs in source order. `None` for samples that were not prepared.
    pub fn watched_costs(&self) -> Vec<Option<Duration>> {
        self.context.costs.watched(&*self.plan)
    }

    /// Starts to record the timeline of up to `most_samples` samples and their batches. Returns the start time.
    pub fn start_timeline(&self, most_samples: usize) -> Instant {
        self.context.metrics.recorder.start(most_samples)
    }

    /// Stops recording. Returns the timeline.
    pub fn stop_timeline(&self) -> Option<Timeline> {
        self.context.metrics.recorder.stop()
    }

    /// Writes the learned costs to a file that a planned order can use.
    pub fn save_costs(&self, path: &Path) -> std::io::Result<()> {
        CostFile::at(path).write(&self.context.costs, &*self.plan)
    }

    /// What the order of delivery changes. `None` in strict order. In planned order: for `epoch`, by default that of the next
    /// iteration. In arrival order: for the current or the last epoch.
    pub fn order_report(&self, epoch: Option<Epoch>) -> Option<OrderReport> {
        match &self.arrivals {
            Some(arrivals) => arrivals.report(epoch, &self.plan),
            None => self.plan.order_report(epoch.unwrap_or_else(|| self.upcoming_epoch())),
        }
    }
}
