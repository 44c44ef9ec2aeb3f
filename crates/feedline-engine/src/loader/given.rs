//! Batches whose samples a sampler outside the engine chooses, one batch after the other.
//!
//! In: requests for batches, as far ahead as [`GivenLoader::wanted_ahead`] says. Out: the batches, in the order of the requests. The
//! sampler, and with it the place in the epoch, belongs to the caller. So a state is kept there, not here.
//!
//! What is *not* done here: starting the workers that make the samples. The supply has them.

use std::sync::Arc;
use std::time::Duration;

use feedline_data::batch::Batch;
use feedline_data::plan::Plan;
use feedline_memory::{Mutex, Pool, Sharing};
use feedline_order::{Epoch, Occurrence, Position, SampleId};

use super::visits::Visits;
use crate::error::Error;
use crate::machine::Machine;
use crate::metrics::Snapshot;
use crate::run::{BatchRequest, Run, RunContext, context_for, keep_costs};
use crate::supply::{GivenBatch, MakingSupply, Supply};

/// A run over batches that the caller chooses.
#[derive(Debug)]
pub struct GivenLoader {
    plan: Arc<Plan>,
    supply: Arc<MakingSupply>,
    context: RunContext,
    machine: Machine,
    run: Run,
    visits: Mutex<Visits>,
}

/// A batch that a sampler has chosen.
#[derive(Debug)]
pub struct ChosenBatch {
    /// The epoch.
    pub epoch: Epoch,
    /// The position of its first sample in the epoch. 0 begins the epoch.
    pub first: Position,
    /// Its samples.
    pub ids: Vec<SampleId>,
    /// Indices in the dataset's own form, if they are not numbers.
    pub indices: Option<Vec<u8>>,
    /// The worker that must make it.
    pub worker: Option<usize>,
}

impl GivenLoader {
    /// Starts the threads of a run, one for each worker of `supply`.
    pub fn start(plan: Arc<Plan>, supply: Arc<MakingSupply>, machine: &Machine) -> Result<Self, Error> {
        let shared: Arc<dyn Supply> = Arc::<MakingSupply>::clone(&supply);
        let mut context = context_for(&plan, &shared, machine);
        // Its threads wait for other processes. A permit for a core would only make them wait for each other.
        context.cores = None;
        let pool = Pool::with_sharing(plan.layout().slab().clone(), 0, Sharing::Private);
        let run = Run::on_demand(Arc::clone(&plan), shared, pool, context.clone())?;
        Ok(Self { plan, supply, context, machine: machine.clone(), run, visits: Mutex::default() })
    }

    /// Requests a batch after all earlier requests.
    pub fn request(&self, chosen: ChosenBatch) {
        let ChosenBatch { epoch, first, ids, indices, worker } = chosen;
        let samples = self.count_visits(epoch, first, ids);
        self.supply.fit(samples.len());
        let given = GivenBatch { epoch, first, samples, indices, worker };
        self.run.request(BatchRequest::Given(Arc::new(given)));
    }

    /// Counts samples of the epoch that the consumer received before this loader was started. `first` is the position of the first.
    pub fn skip(&self, epoch: Epoch, first: Position, ids: Vec<SampleId>) {
        self.count_visits(epoch, first, ids);
    }

    fn count_visits(&self, epoch: Epoch, first: Position, ids: Vec<SampleId>) -> Vec<(SampleId, Occurrence)> {
        let mut visits = self.visits.lock();
        if first.0 == 0 {
            visits.begin(epoch);
        }
        ids.into_iter().map(|id| (id, visits.count(id))).collect()
    }

    /// How many batches to request ahead of the consumer, so that all workers are busy and slow samples start early.
    pub fn wanted_ahead(&self) -> usize {
        self.run.wanted_ahead()
    }

    /// Waits up to `timeout` for the next batch. Returns whether [`GivenLoader::take`] has it.
    pub fn wait_within(&self, timeout: Duration) -> Result<bool, Error> {
        self.run.wait_within(timeout)
    }

    /// Takes the next batch, if it is ready.
    pub fn take(&self) -> Result<Option<Batch>, Error> {
        Ok(self.run.take()?.map(|(delivery, _)| delivery.batch))
    }

    /// Drops all requests and prepared batches. An error is forgotten.
    pub fn reset(&self) {
        self.run.seek(crate::state::Cursor::default());
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The epoch of the last request.
    pub fn epoch(&self) -> Epoch {
        self.visits.lock().epoch()
    }

    /// The supply, which knows the form of the samples.
    pub fn supply(&self) -> &MakingSupply {
        &self.supply
    }

    /// All counters.
    pub fn snapshot(&self) -> Snapshot {
        let RunContext { metrics, budget, .. } = &self.context;
        Snapshot::new(metrics, self.run.workers(), self.run.queue(), budget.snapshot())
    }

    /// Ends the threads within a second.
    pub fn close(&self) {
        self.run.close();
        keep_costs(&self.plan, &self.context.costs, &self.machine);
    }
}
