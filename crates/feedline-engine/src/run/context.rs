//! What outlives a run: counters, memory, costs, cores.

use std::sync::Arc;

use feedline_data::cost::{CostFile, Costs};
use feedline_data::memory::{Budget, MachineShare};
use feedline_data::plan::Plan;

use crate::machine::{Cores, Machine};
use crate::metrics::Metrics;
use crate::supply::Supply;

/// What outlives a run: the next run of the same loader goes on with it.
#[derive(Clone, Debug)]
pub struct RunContext {
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The account of memory.
    pub budget: Arc<Budget>,
    /// What samples cost.
    pub costs: Arc<Costs>,
    /// The cores that it shares with other runs, if there are some.
    pub cores: Option<Arc<Cores>>,
    /// The part of the machine that it may take unasked.
    pub share: Arc<MachineShare>,
}

impl RunContext {
    /// Of a stream whose samples others prepare: it only counts.
    pub(crate) fn of_receiver(plan: &Plan) -> Self {
        Self {
            metrics: Arc::new(Metrics::new(plan)),
            budget: Budget::new(0),
            costs: Arc::new(Costs::new(plan)),
            cores: None,
            share: Arc::default(),
        }
    }
}

/// What outlives the runs of a plan, with the costs that earlier ones have learnt.
pub(crate) fn context_for(plan: &Plan, supply: &Arc<dyn Supply>, machine: &Machine) -> RunContext {
    let asked = plan.config().memory_budget.map(|bytes| bytes.0);
    let costs = cost_file(plan, machine).and_then(|file| file.read(plan)).unwrap_or_else(|| Costs::new(plan));
    RunContext {
        metrics: Arc::new(Metrics::counting(plan, supply.traffic())),
        budget: Budget::asked_or_shared(asked, machine.memory_bytes, &machine.share),
        costs: Arc::new(costs),
        cores: machine.cores.clone(),
        share: Arc::clone(&machine.share),
    }
}

/// Keeps what samples cost for the next run of the plan, if there are some worth it.
pub(crate) fn keep_costs(plan: &Plan, costs: &Costs, machine: &Machine) {
    let Some(file) = cost_file(plan, machine).filter(|_| costs.has_news() && !machine.is_trial) else { return };
    if let (Err(error), Some(folder)) = (file.write(costs, plan), &machine.cache_folder) {
        folder.warn(&error);
    }
}

fn cost_file(plan: &Plan, machine: &Machine) -> Option<CostFile> {
    machine.cache_folder.as_ref().map(|folder| CostFile::in_folder(folder, plan))
}
