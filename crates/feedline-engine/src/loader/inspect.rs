//! What a loader says about itself: counters, costs, timelines, order.

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
    /// What a storage server does for it, and why, where samples come from one.
    pub fn offload(&self) -> Option<OffloadReport> {
        self.supply.as_ref()?.offload()
    }

    /// All that was done so far, in numbers.
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

    /// What each sample of the source, in its order, will take in the epoch that the next iteration would run.
    pub fn costs(&self) -> Vec<Duration> {
        let (epoch, source) = (self.upcoming_epoch(), self.plan.source());
        let wanted = |ordinal| SampleRequest { id: source.id_at(ordinal), epoch, occurrence: Occurrence(0) };
        let work_hint = |wanted| self.supply.as_ref().map_or(WorkHint::Usual, |supply| supply.work_hint(wanted));
        let predict = |wanted| self.context.costs.predict(&*self.plan, wanted, work_hint(wanted));
        (0..source.len()).map(Ordinal).map(|ordinal| predict(wanted(ordinal))).collect()
    }

    /// Notes what each sample of an epoch takes.
    pub fn watch_costs(&self, epoch: Epoch) {
        self.context.costs.watch(&*self.plan, epoch);
    }

    /// What the samples of that epoch took, in the source's order, as far as they were prepared.
    pub fn watched_costs(&self) -> Vec<Option<Duration>> {
        self.context.costs.watched(&*self.plan)
    }

    /// Begins to keep the life of up to `most_samples` samples and of their batches; gives when it began.
    pub fn start_timeline(&self, most_samples: usize) -> Instant {
        self.context.metrics.recorder.start(most_samples)
    }

    /// Ends that, and gives what was kept.
    pub fn stop_timeline(&self) -> Option<Timeline> {
        self.context.metrics.recorder.stop()
    }

    /// Writes what samples cost to a file, by which a planned order can be made.
    pub fn save_costs(&self, path: &Path) -> std::io::Result<()> {
        CostFile::at(path).write(&self.context.costs, &*self.plan)
    }

    /// What the order of delivery changes; nothing in strict order. In planned order: in `epoch`, by default the one that the next
    /// iteration would run. In arrival order: in the epoch under way, or else the last one.
    pub fn order_report(&self, epoch: Option<Epoch>) -> Option<OrderReport> {
        match &self.arrivals {
            Some(arrivals) => arrivals.report(epoch, &self.plan),
            None => self.plan.order_report(epoch.unwrap_or_else(|| self.upcoming_epoch())),
        }
    }
}
