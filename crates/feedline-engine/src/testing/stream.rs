//! Collects whole streams for comparisons.

use std::time::Duration;

use feedline_data::batch::Batch;

use crate::error::Error;
use crate::loader::{Loader, Next};

/// Upper limit of the wait for one batch. It only guards against hangs.
const PATIENCE: Duration = Duration::from_mins(1);

/// All batches of the next iteration.
pub fn collect(loader: &Loader) -> Result<Vec<Batch>, Error> {
    take(loader, usize::MAX)
}

/// The first `count` batches of the next iteration. The iteration stays open.
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
