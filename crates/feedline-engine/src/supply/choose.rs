//! Chooses the supply for a plan: by the location of its source, its shuffle, and its cache.

use std::sync::Arc;

use feedline_data::plan::Plan;

use super::cold_files::ColdFiles;
use super::read_ahead::{ReadAhead, bytes_ahead};
use super::{LocalSupply, PrefixCache, Supply};
use crate::machine::Machine;

/// Builds the supply for a plan's samples.
pub(crate) fn supply_for(plan: &Arc<Plan>, machine: &Machine) -> Arc<dyn Supply> {
    let local = LocalSupply::new(Arc::clone(plan), machine);
    let near = plan.source().peer().and_then(|peer| Some((peer, plan.prefix().ok()?)));
    let supply: Arc<dyn Supply> = match near {
        _ if let Some(reservoir) = plan.sequence().reservoir() => {
            Arc::new(ReadAhead::reservoir(plan, reservoir, local, machine))
        }
        _ if ReadAhead::is_in_segments(plan, &local) => Arc::new(ReadAhead::segments(plan, local)),
        Some((peer, prefix)) => Arc::new(ReadAhead::near(plan, local, peer, prefix, machine)),
        None if plan.source().is_remote() => Arc::new(ReadAhead::of_source(plan, local, machine)),
        None if ColdFiles::may_be(plan) => Arc::new(ColdFiles::new(plan, local, bytes_ahead(plan, machine))),
        None => Arc::new(local),
    };
    match &plan.config().cache {
        Some(config) => Arc::new(PrefixCache::new(Arc::clone(plan), supply, config, machine)),
        None => supply,
    }
}
