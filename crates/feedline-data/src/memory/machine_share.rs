//! Divides a machine between the ranks of a job and the loaders of a process.
//!
//! In: the number of ranks on this machine, and the iterating loaders of this process. Out: the default number of cores and bytes
//! for one loader. Explicit settings (`num_workers=4`, `memory_budget="1GB"`) are never divided.
//!
//! Always true: the shares of all ranks and iterating loaders add up to about the whole machine. A loader that does not iterate
//! does not count. When one starts or stops, the shares of the others change at once.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The processes of one job on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalRanks {
    /// Processes that divide the machine's memory.
    pub memory: NonZeroUsize,
    /// Processes that divide the cores of this process. 1 if the launcher bound each rank to its own cores.
    pub cores: NonZeroUsize,
}

impl LocalRanks {
    /// A single process.
    pub const ALONE: Self = Self { memory: NonZeroUsize::MIN, cores: NonZeroUsize::MIN };
}

/// The share of a machine for each iterating loader of a process.
#[derive(Debug)]
pub struct MachineShare {
    ranks: LocalRanks,
    /// Loaders of this process that iterate.
    iterating: Arc<AtomicUsize>,
}

/// Counts a loader as iterating until it is dropped.
#[derive(Debug)]
pub struct Iterating(Arc<AtomicUsize>);

impl Drop for Iterating {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for MachineShare {
    fn default() -> Self {
        Self::new(LocalRanks::ALONE, Arc::default())
    }
}

impl MachineShare {
    /// The share of a process among `ranks`. `iterating` counts its loaders.
    pub fn new(ranks: LocalRanks, iterating: Arc<AtomicUsize>) -> Self {
        Self { ranks, iterating }
    }

    /// Counts a loader as iterating.
    pub fn begin(&self) -> Iterating {
        self.iterating.fetch_add(1, Ordering::Relaxed);
        Iterating(Arc::clone(&self.iterating))
    }

    /// Cores for one loader, at least one.
    pub fn cores(&self) -> usize {
        let available = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        // Rounded up: one thread too many costs less than an idle core.
        available.div_ceil(self.ranks.cores.get() * self.iterating())
    }

    /// The part of `bytes` for one loader.
    pub(crate) fn bytes(&self, bytes: u64) -> u64 {
        bytes / (self.ranks.memory.get() * self.iterating()) as u64
    }

    fn iterating(&self) -> usize {
        // A loader may ask before it counts as iterating. The counter guards no other data, so relaxed is enough.
        self.iterating.load(Ordering::Relaxed).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_iterating_loaders_divide_cores_and_memory() {
        let available = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let four = NonZeroUsize::new(4).unwrap();
        let share = MachineShare::new(LocalRanks { memory: four, cores: four }, Arc::default());
        assert_eq!((share.cores(), share.bytes(800)), (available.div_ceil(4), 200));
        let (first, second) = (share.begin(), share.begin());
        assert_eq!((share.cores(), share.bytes(800)), (available.div_ceil(8), 100));
        drop((first, second));
        assert_eq!(share.bytes(800), 200, "a loader that does not iterate does not count");
        let bound = MachineShare::new(LocalRanks { memory: four, cores: NonZeroUsize::MIN }, Arc::default());
        assert_eq!((bound.cores(), bound.bytes(800)), (available, 200), "cores that belong to this rank alone");
    }
}
