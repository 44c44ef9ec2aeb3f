//! Everything that outlives a run: counters, memory budget, learned costs, cores.

use std::sync::Arc;

use feedline_data::cost::{CostFile, Costs};
use feedline_data::memory::{Budget, MachineShare};
use feedline_data::plan::Plan;

use crate::machine::{Cores, Machine};
use crate::metrics::Metrics;
use crate::supply::Supply;

/// Shared by all runs of one loader, one after the other.
#[derive(Clone, Debug)]
pub struct RunContext {
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// The memory budget.
    pub budget: Arc<Budget>,
    /// Learned costs of samples.
    pub costs: Arc<Costs>,
    /// The core scheduler of the process, where several runs share its cores.
    pub cores: Option<Arc<Cores>>,
    /// The share of the machine that this loader may use by default.
    pub share: Arc<MachineShare>,
}

impl RunContext {
    /// A context for a stream whose samples another process prepares. It only counts.
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

/// Builds the context for the runs of a plan, with the costs that earlier runs saved.
pub(crate) fn context_for(plan: &Plan, supply: &Arc<dyn Supply>, machine: &Machine) -> RunContext {
    let asked = plan.config().memory_budget.map(|bytes| bytes.0);
    let costs = cost_file(plan, machine).and_then(|file| file.read(plan)).unwrap_or_else(|| Costs::new(plan));
    RunContext {
        metrics: Arc::new(Metrics::counting(plan, supply.traffic())),
        budget: Budget::fixed_or_shared(asked, machine.memory_bytes, &machine.share),
        costs: Arc::new(costs),
        cores: machine.cores.clone(),
        share: Arc::clone(&machine.share),
    }
}

/// Saves the learned costs for the next run of the plan, if samples are expensive enough for it to matter.
pub(crate) fn keep_costs(plan: &Plan, costs: &Costs, machine: &Machine) {
    let Some(file) = cost_file(plan, machine).filter(|_| costs.has_news() && !machine.is_trial) else { return };
    if let (Err(error), Some(folder)) = (file.write(costs, plan), &machine.cache_folder) {
        folder.warn(&error);
    }
}

fn cost_file(plan: &Plan, machine: &Machine) -> Option<CostFile> {
    machine.cache_folder.as_ref().map(|folder| CostFile::in_folder(folder, plan))
}
