//! Runs the first batches of a plan, to detect hangs and aborts of the engine.

use std::sync::Arc;
use std::time::Duration;

use feedline_data::plan::Plan;
use feedline_engine::loader::{Loader, Next};
use feedline_engine::machine::Machine;

/// Upper limit of batches to take.
const MAX_BATCHES: usize = 4;
/// A batch takes milliseconds. After this time the engine counts as hanging, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(30);

/// A machine with enough memory for every seed, but so little that a trusted false length is noticed.
pub fn machine() -> Machine {
    Machine { memory_bytes: Some(64 << 20), ..Machine::default() }
}

/// Takes the first batches of an iteration. An error is a valid result. Only a hang is not.
pub fn take_batches(loader: &Loader) {
    let Ok(iteration) = loader.begin() else { return };
    for _ in 0..MAX_BATCHES {
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
