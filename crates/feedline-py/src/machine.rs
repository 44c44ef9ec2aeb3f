//! What the machine gives to a loader of this process.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, LazyLock};

use feedline_core::Machine;
use feedline_core::engine::{LocalRanks, MachineShare};
use pyo3::prelude::*;

/// Loaders of this process that iterate: they divide its cores and memory.
static ITERATING: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// The machine as Python describes it: memory in bytes, a folder for what later runs can use, and the processes of the job
/// that divide its memory and its cores.
#[derive(FromPyObject)]
pub struct MachineParts(Option<u64>, Option<PathBuf>, usize, usize);

impl From<MachineParts> for Machine {
    fn from(MachineParts(memory_bytes, cache_folder, memory, cores): MachineParts) -> Self {
        let at_least_one = |count| NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN);
        let ranks = LocalRanks { memory: at_least_one(memory), cores: at_least_one(cores) };
        let share = Arc::new(MachineShare::new(ranks, Arc::clone(&ITERATING)));
        let cache_folder = cache_folder.map(Into::into);
        Self { memory_bytes, cache_folder, share, ..Self::default() }
    }
}
