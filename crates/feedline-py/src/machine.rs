//! The resources of the machine for the loaders of this process.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use feedline_data::memory::{LocalRanks, MachineShare};
use feedline_engine::machine::Machine;
use feedline_memory::Mutex;
use pyo3::prelude::*;

/// The process id, and the number of loaders that iterate in it. They share cores and memory. A forked child starts with zero.
static ITERATING: Mutex<Option<(u32, Arc<AtomicUsize>)>> = Mutex::new(None);

fn iterating() -> Arc<AtomicUsize> {
    let mut current = ITERATING.lock();
    // After a fork the counter still has the loaders of the parent, so the child starts a new one.
    let own = current.take().filter(|(process, _)| *process == process::id());
    Arc::clone(&current.insert(own.unwrap_or_else(|| (process::id(), Arc::default()))).1)
}

/// The machine as Python describes it: memory in bytes, the cache folder, and the numbers of processes of the job that share its
/// memory and its cores.
#[derive(FromPyObject)]
pub struct MachineParts(Option<u64>, Option<PathBuf>, usize, usize);

impl From<MachineParts> for Machine {
    fn from(MachineParts(memory_bytes, cache_folder, memory, cores): MachineParts) -> Self {
        let at_least_one = |count| NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN);
        let ranks = LocalRanks { memory: at_least_one(memory), cores: at_least_one(cores) };
        let share = Arc::new(MachineShare::new(ranks, iterating()));
        let cache_folder = cache_folder.map(Into::into);
        Self { memory_bytes, cache_folder, share, kept_cache: Some(Arc::default()), ..Self::default() }
    }
}
