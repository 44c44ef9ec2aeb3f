//! Copies the index of a shard that is with a peer, because every sample needs it.
//!
//! In: an open shard. Out: its index in the cache folder, or in memory without a cache folder. A cached copy that fits needs no
//! request. Otherwise the index next to the shard is copied. It names the time of the shard before the upload, which is not the
//! time of the uploaded shard. So it is compared once with headers spread over the shard.

use std::sync::Arc;

use super::index::{ENDING, Freshness, Index, IndexHead};
use super::memory::MemoryObject;
use super::pattern::FoundShard;
use super::shard::{IndexCache, Located, Opened, Place};
use crate::memory::NoMemory;
use crate::store::{BufferSource, Object, StoreError};

/// An index may be larger than its shard by this many bytes. A larger one is not plausible and is not downloaded.
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

/// Copies the index next to a shard. If none fits, lists the shard. Does not look at the cached copy, but replaces it.
pub(super) fn copy(
    found: &FoundShard,
    shard: &dyn Object,
    cache: Option<&IndexCache>,
) -> Result<(Located, Opened), StoreError> {
    let mut buffer = Bounded { bytes: Vec::new(), limit: shard.len().saturating_add(SLACK_BYTES) };
    let name = format!("{}{ENDING}", found.name);
    // Most stores have no index next to the shard. Every failure means the same: list the shard.
    let beside = found.store.read(&name, &mut buffer).is_ok().then_some(buffer.bytes);
    // Used only if the shard is listed: an index that exists but does not fit is replaced.
    let opened = if beside.is_some() { Opened::Replaced } else { Opened::Listed };
    match beside.map(|bytes| checked(found.store.address(&name), bytes, shard)).transpose()?.flatten() {
        Some(bytes) => Ok((Located::saved(shard, bytes, cache)?, Opened::Indexed)),
        None => Ok((Located::from_listing(shard, cache)?, opened)),
    }
}

/// The head of the cached index, if it was made for this length and time of the shard.
fn cached_copy(found: &FoundShard, shard: &dyn Object, cache: Option<&IndexCache>) -> Option<IndexHead> {
    let index = Place::Cache.open(found, Some(cache?)).ok()?;
    IndexHead::read(&*index).ok()?.filter(|head| head.is_exact(shard))
}

/// Checks the index from next to a shard. Returns it with the shard's current time in its head, so that the copy is exact from now
/// on. `None` if it does not fit.
fn checked(address: String, bytes: Vec<u8>, shard: &dyn Object) -> Result<Option<Vec<u8>>, StoreError> {
    let object = Arc::new(MemoryObject::new(address, bytes));
    let Some(head) = IndexHead::read(&*object)? else { return Ok(None) };
    // Comparing the length and both ends is cheap. Only if they match, up to 64 headers are compared.
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
