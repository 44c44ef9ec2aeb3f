//! Plans opened from text.

use std::sync::Arc;

use feedline_order::Rank;

use crate::plan::{Document, Plan, PlanError, Registry};

/// Opens a plan written as TOML with the ops and sources of this crate.
pub fn open(plan: &str) -> Result<Arc<Plan>, PlanError> {
    open_for(Rank::ALONE, plan)
}

/// Opens a plan written as TOML for one of several ranks.
pub fn open_for(rank: Rank, plan: &str) -> Result<Arc<Plan>, PlanError> {
    Ok(Arc::new(Document::parse(plan)?.for_rank(rank).open(&Registry::core())?))
}
