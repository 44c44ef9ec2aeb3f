//! Streams collected whole, to be compared.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::Batch;
use crate::error::Error;
use crate::order::Rank;
use crate::plan::{Document, Plan, PlanError, Registry};
use crate::sink::{Loader, Next};

/// Longest wait for one batch: a limit against hangs, far beyond what any test takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// Opens a plan written as TOML with the ops and sources of this crate.
pub fn open(plan: &str) -> Result<Arc<Plan>, PlanError> {
    open_for(Rank::ALONE, plan)
}

/// Opens a plan written as TOML for one of several ranks.
pub fn open_for(rank: Rank, plan: &str) -> Result<Arc<Plan>, PlanError> {
    Ok(Arc::new(Document::parse(plan)?.for_rank(rank).open(&Registry::core())?))
}

/// All batches of the next iteration.
pub fn collect(loader: &Loader) -> Result<Vec<Batch>, Error> {
    take(loader, usize::MAX)
}

/// The first `count` batches of the next iteration, which is left there.
pub fn take(loader: &Loader, count: usize) -> Result<Vec<Batch>, Error> {
    let iteration = loader.begin()?;
    let mut batches = Vec::new();
    while batches.len() < count {
        match loader.next_within(iteration, PATIENCE)? {
            Next::Batch(batch) => batches.push(*batch),
            Next::End => break,
            Next::NotYet => panic!("no batch within {PATIENCE:?}"),
        }
    }
    Ok(batches)
}
