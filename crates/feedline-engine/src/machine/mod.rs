//! What a machine provides to a stream: memory, cores, and a cache folder.

mod cores;
mod sync;
mod weight;

use std::sync::Arc;

use feedline_data::memory::MachineShare;
use feedline_data::private_files::CacheFolder;

pub use cores::{CoreClaim, Cores, Permit};
pub use weight::CoreWeight;

use crate::cache::{KeptCache, Memories};

/// The resources of a machine.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Its memory, which decides the default budget.
    pub memory_bytes: Option<u64>,
    /// Where data for later runs is kept. Without it nothing is kept.
    pub cache_folder: Option<CacheFolder>,
    /// Whether this is a trial. The costs of a trial are not saved.
    pub is_trial: bool,
    /// Cores that runs share by least slack. Without it a run ignores other runs.
    pub cores: Option<Arc<Cores>>,
    /// The share of the machine that this process, and each of its loaders, may use by default.
    pub share: Arc<MachineShare>,
    /// Samples in memory that several runs share. Without it each run caches for itself.
    pub memories: Option<Arc<Memories>>,
    /// Samples in memory that the next run of the same loader takes over. Only for runs with the same source and ops.
    pub kept_cache: Option<Arc<KeptCache>>,
}
