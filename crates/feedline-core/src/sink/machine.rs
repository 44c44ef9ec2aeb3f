//! What a machine gives to a stream: memory, a folder for what lasts, and a supply by where the source is.

use std::sync::Arc;

use crate::cache::{Memories, PrefixCache};
use crate::cost::{CostFile, Costs};
use crate::engine::{Budget, Cores, Lasting, MachineShare};
use crate::metrics::Metrics;
use crate::plan::Plan;
use crate::private_files::CacheFolder;
use crate::supply::{LocalSupply, NearSupply, ReadAhead, ReservoirSupply, SegmentSupply, Supply};

/// What the machine gives to a stream.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Its memory, for the default budget.
    pub memory_bytes: Option<u64>,
    /// Where to keep what later runs can use. Nothing is kept without it.
    pub cache_folder: Option<CacheFolder>,
    /// Whether what samples cost is not kept: they are prepared to find something out.
    pub is_trial: bool,
    /// Cores that several runs share by least slack; without it a run takes no notice of others.
    pub cores: Option<Arc<Cores>>,
    /// The part of the machine that this process and each of its loaders may take unasked.
    pub share: Arc<MachineShare>,
    /// Samples in memory that several runs have in common; without it each run has what it keeps for itself.
    pub memories: Option<Arc<Memories>>,
}

/// The supply of a plan's samples.
pub(crate) fn supply_for(plan: &Arc<Plan>, machine: &Machine) -> Arc<dyn Supply> {
    let local = LocalSupply::new(Arc::clone(plan), machine);
    let near = plan.source().peer().and_then(|peer| Some((peer, plan.prefix().ok()?)));
    let supply: Arc<dyn Supply> = match near {
        _ if let Some(reservoir) = plan.sequence().reservoir() => {
            Arc::new(ReservoirSupply::new(plan, reservoir, local, machine))
        }
        _ if SegmentSupply::is_for(plan, &local) => Arc::new(SegmentSupply::new(local)),
        Some((peer, prefix)) => Arc::new(NearSupply::new(plan, local, peer, prefix, machine)),
        None if plan.source().is_remote() => Arc::new(ReadAhead::new(plan, local, machine)),
        None => Arc::new(local),
    };
    match &plan.config().cache {
        Some(config) => Arc::new(PrefixCache::new(Arc::clone(plan), supply, config, machine)),
        None => supply,
    }
}

/// What outlives the runs of a plan, with the costs that earlier ones have learnt.
pub(crate) fn lasting_for(plan: &Plan, supply: &Arc<dyn Supply>, machine: &Machine) -> Lasting {
    let asked = plan.config().memory_budget.map(|bytes| bytes.0);
    let costs = cost_file(plan, machine).and_then(|file| file.read(plan)).unwrap_or_else(|| Costs::new(plan));
    Lasting {
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
