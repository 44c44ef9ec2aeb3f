//! Copies the index of a shard that is with a peer, because every sample needs it.
//!
//! In: an open shard. Out: its index in the cache folder, or in memory without a cache folder. A cached copy that fits needs no
//! request. Otherwise the index next to the shard is copied. Its time never matches the shard's, since both were uploaded, so it is
//! compared once with headers spread over the shard.

use std::sync::Arc;

use super::index::{ENDING, Freshness, Index, IndexHead};
use super::memory::MemoryObject;
use super::pattern::FoundShard;
use super::shard::{IndexCache, Located, Opened, Place};
use crate::memory::NoMemory;
use crate::store::{BufferSource, Object, StoreError};

/// An index may be larger than its shard by this many bytes. More is not plausible, and is not downloaded.
const SLACK_BYTES: u64 = 1 << 20;

/// Finds the index of a shard that is with a peer.
pub(super) fn locate(
    found: &FoundShard,
    shard: &dyn Object,
    cache: Option<&IndexCache>,
) -> Result<(Located, Opened), StoreError> {
    match cached_copy(found, shard, cache) {
        Some(head) => Ok((Located { place: Place::Cache, head: Arc::new(head) }, Opened::Indexed)),
        None => copy(found, shard, cache),
    }
}

/// Copies the index next to a shard. Lists the shard if there is no index that fits.
pub(super) fn copy(
    found: &FoundShard,
    shard: &dyn Object,
    cache: Option<&IndexCache>,
) -> Result<(Located, Opened), StoreError> {
    let mut buffer = Bounded { bytes: Vec::new(), limit: shard.len().saturating_add(SLACK_BYTES) };
    let name = format!("{}{ENDING}", found.name);
    // Most stores have no index next to the shard. Every failure means the same: list the shard.
    let beside = found.store.read(&name, &mut buffer).is_ok().then_some(buffer.bytes);
    let opened = if beside.is_some() { Opened::Replaced } else { Opened::Listed };
    match beside.map(|bytes| checked(found.store.address(&name), bytes, shard)).transpose()?.flatten() {
        Some(bytes) => Ok((Located::saved(shard, bytes, cache)?, Opened::Indexed)),
        None => Ok((Located::from_listing(shard, cache)?, opened)),
    }
}

fn cached_copy(found: &FoundShard, shard: &dyn Object, cache: Option<&IndexCache>) -> Option<IndexHead> {
    let index = Place::Cache.open(found, Some(cache?)).ok()?;
    IndexHead::read(&*index).ok()?.filter(|head| head.is_exact(shard))
}

/// Checks an index from next to a shard and binds it to the shard's length and time. `None` if it does not fit.
fn checked(address: String, bytes: Vec<u8>, shard: &dyn Object) -> Result<Option<Vec<u8>>, StoreError> {
    let object = Arc::new(MemoryObject::new(address, bytes));
    let Some(head) = IndexHead::read(&*object)? else { return Ok(None) };
    // The cheap comparison of length and ends comes first, the one of 64 headers only if it succeeds.
    if head.freshness(shard)? == Freshness::Stale {
        return Ok(None);
    }
    let index = Index { object: Arc::clone(&object) as Arc<dyn Object>, head: Arc::new(head) };
    let fits = index.fits(shard).unwrap_or(false);
    Ok(fits.then(|| index.head.rebound(shard, object.bytes())))
}

/// A buffer for an index of a plausible size.
struct Bounded {
    bytes: Vec<u8>,
    limit: u64,
}

impl BufferSource for Bounded {
    fn room(&mut self, len: usize) -> Result<&mut [u8], NoMemory> {
        let bytes = len as u64;
        if bytes > self.limit {
            return Err(NoMemory::TooLarge { bytes, memory: self.limit });
        }
        self.bytes.room(len)
    }
}
