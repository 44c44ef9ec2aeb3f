//! What a machine gives to a stream: memory, cores, and a folder for what lasts.

mod cores;
mod sync;

use std::sync::Arc;

use feedline_data::memory::MachineShare;
use feedline_data::private_files::CacheFolder;

pub use cores::{CoreClaim, Cores, Permit};

use crate::cache::Memories;

/// What the machine gives to a stream.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Its memory, for the default budget.
    pub memory_bytes: Option<u64>,
    /// Where to keep what later runs can use. Nothing is kept without it.
    pub cache_folder: Option<CacheFolder>,
    /// Whether what samples cost is not kept: they are prepared to find something out.
    pub is_trial: bool,
    /// Cores that several runs share by least slack; without it a run takes no notice of others.
    pub cores: Option<Arc<Cores>>,
    /// The part of the machine that this process and each of its loaders may take unasked.
    pub share: Arc<MachineShare>,
    /// Samples in memory that several runs have in common; without it each run has what it keeps for itself.
    pub memories: Option<Arc<Memories>>,
}
