//! Runs the first batches of a plan, so that a hang or an abort of the engine shows.

use std::sync::Arc;
use std::time::Duration;

use feedline_data::plan::Plan;
use feedline_engine::loader::{Loader, Next};
use feedline_engine::machine::Machine;

/// Batches that are taken at most.
const MOST_BATCHES: usize = 4;
/// A batch takes milliseconds. Beyond this the engine hangs, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the machine has: enough for every seed, and little enough that a length that is believed shows.
pub fn machine() -> Machine {
    Machine { memory_bytes: Some(64 << 20), ..Machine::default() }
}

/// Takes the first batches of an iteration. Errors are as good as batches: what counts is that there is an answer.
pub fn take_batches(loader: &Loader) {
    let Ok(iteration) = loader.begin() else { return };
    for _ in 0..MOST_BATCHES {
        match loader.next_within(iteration, PATIENCE) {
            Ok(Next::Batch(_)) => {}
            Ok(Next::NotYet) => panic!("no batch within {PATIENCE:?}"),
            Ok(Next::End) | Err(_) => break,
        }
    }
    loader.snapshot();
    loader.state();
    loader.close();
}

/// Runs a plan from its beginning.
pub fn run(plan: &Arc<Plan>) {
    take_batches(&Loader::new(Arc::clone(plan), &machine()));
}
