//! What the machine gives to a loader of this process.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use feedline_data::memory::{LocalRanks, MachineShare};
use feedline_engine::machine::Machine;
use feedline_memory::Mutex;
use pyo3::prelude::*;

/// Loaders that iterate in a process, by its number: they divide its cores and memory. A forked child begins anew.
static ITERATING: Mutex<Option<(u32, Arc<AtomicUsize>)>> = Mutex::new(None);

fn iterating() -> Arc<AtomicUsize> {
    let mut kept = ITERATING.lock();
    let own = kept.take().filter(|(process, _)| *process == process::id());
    Arc::clone(&kept.insert(own.unwrap_or_else(|| (process::id(), Arc::default()))).1)
}

/// The machine as Python describes it: memory in bytes, a folder for what later runs can use, and the processes of the job
/// that divide its memory and its cores.
#[derive(FromPyObject)]
pub struct MachineParts(Option<u64>, Option<PathBuf>, usize, usize);

impl From<MachineParts> for Machine {
    fn from(MachineParts(memory_bytes, cache_folder, memory, cores): MachineParts) -> Self {
        let at_least_one = |count| NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN);
        let ranks = LocalRanks { memory: at_least_one(memory), cores: at_least_one(cores) };
        let share = Arc::new(MachineShare::new(ranks, iterating()));
        let cache_folder = cache_folder.map(Into::into);
        Self { memory_bytes, cache_folder, share, ..Self::default() }
    }
}
