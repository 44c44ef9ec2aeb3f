//! The plans of a server's clients. Each is opened once for all clients.
//!
//! In: documents of clients, which may be hostile. Out: preparers. Always true: everything that a plan names is below the root. The
//! number of kept plans is limited.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use feedline_data::failure::chain;
use feedline_data::plan::{Plan, PlanError, Registry};
use feedline_data::source::{Opener, Source, listing_hash};
use feedline_data::store::Prefix;
use feedline_engine::machine::Machine;
use feedline_engine::supply::NearPreparer;
use feedline_memory::{Mutex, MutexGuard};
use lru::LruCache;

use super::SCHEMES;
use super::root::Root;

/// Upper limit of kept plans. A client whose plan was dropped sends it again.
const MAX_PLANS: NonZero<usize> = NonZero::new(64).expect("it is not zero");
/// Upper limit of kept sources, which are listings of many names.
const MAX_SOURCES: NonZero<usize> = NonZero::new(8).expect("it is not zero");

/// The plans and sources that this server has opened for its clients.
pub(super) struct Plans {
    registry: Registry,
    machine: Machine,
    known: Mutex<LruCache<u128, Arc<OpenPlan>>>,
    sources: Mutex<LruCache<String, Arc<dyn Source>>>,
}

/// An open plan.
#[derive(Debug)]
pub(super) struct OpenPlan {
    pub preparer: NearPreparer,
    /// Bytes of the longest sample sent so far.
    pub longest_reply: AtomicU64,
}

impl std::fmt::Debug for Plans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plans").finish_non_exhaustive()
    }
}

impl Plans {
    /// Plans over the files below a root. `cache_folder` keeps what was found out about them.
    pub(super) fn new(root: &Arc<Root>, cache_folder: Option<PathBuf>) -> Self {
        // A confined registry opens no file by its path. The only stores are those below, so a plan reaches nothing but this root.
        let mut registry = Registry::confined();
        if let Some(folder) = &cache_folder {
            registry = registry.with_cache_folder(folder.clone());
        }
        for scheme in SCHEMES {
            let root = Arc::clone(root);
            registry.store(scheme, move |url| {
                let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
                let folder = rest.split_once('/').map_or("", |(_, folder)| folder);
                root.below(folder.trim_matches('/'))
            });
        }
        Self {
            registry,
            machine: Machine { cache_folder: cache_folder.map(Into::into), ..Machine::default() },
            known: Mutex::new(LruCache::new(MAX_PLANS)),
            sources: Mutex::new(LruCache::new(MAX_SOURCES)),
        }
    }

    /// A plan that was opened.
    pub(super) fn get(&self, number: u128) -> Option<Arc<OpenPlan>> {
        lock(&self.known).get(&number).cloned()
    }

    /// Opens a plan. The client identifies its samples by the hash `listing`.
    pub(super) fn open(&self, text: &str, listing: u128) -> Result<(), String> {
        let number = Prefix::number_of(text, listing);
        if self.get(number).is_some() {
            return Ok(());
        }
        let explained = |error: PlanError| chain(&error);
        let plan = Plan::open_prefix(text, &self.registry, |table| self.source(table, listing)).map_err(explained)?;
        if listing_hash(&**plan.source()) != listing {
            return Err("the server has other samples than the client has listed; restart the client".to_owned());
        }
        let preparer = NearPreparer::new(Arc::new(plan), &self.machine);
        lock(&self.known).put(number, Arc::new(OpenPlan { preparer, longest_reply: AtomicU64::new(0) }));
        Ok(())
    }

    /// A source as it was listed before, or listed again if the client has a newer listing.
    fn source(&self, table: toml::Table, listing: u128) -> Result<Arc<dyn Source>, PlanError> {
        let key = without_hosts(&table.to_string());
        // Equal hashes mean that client and server list the same samples, so the listing need not be repeated.
        if let Some(known) = lock(&self.sources).get(&key).filter(|known| listing_hash(&***known) == listing) {
            return Ok(Arc::clone(known));
        }
        let source = self.registry.open_source(table)?;
        lock(&self.sources).put(key, Arc::clone(&source));
        Ok(source)
    }
}

/// The text without host names. Whatever name a client uses for this server, its files are the same.
fn without_hosts(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut parts = text.split("://");
    out.extend(parts.next());
    for part in parts {
        let host = part.find(['/', '"', '\'']).unwrap_or(part.len());
        out.push_str(&part[host..]);
    }
    out
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
