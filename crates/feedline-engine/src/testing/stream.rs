//! Streams collected whole, to be compared.

use std::time::Duration;

use feedline_data::batch::Batch;

use crate::error::Error;
use crate::loader::{Loader, Next};

/// Longest wait for one batch: a limit against hangs, far beyond what any test takes.
const PATIENCE: Duration = Duration::from_mins(1);

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
