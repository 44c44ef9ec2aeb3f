//! The index of a shard that is with a peer: copied here once, because every sample looks into it.
//!
//! In: an open shard. Out: its index in the cache folder, made out to the shard as it is, or in memory where there is no such
//! folder. A copy that fits is taken without asking for anything. Else the index beside the shard is, whose time is never the
//! shard's, since both were copied there: it is compared with headers all over the shard, once.

use std::sync::Arc;

use super::index::{ENDING, Freshness, Index, IndexHead};
use super::memory::MemoryObject;
use super::pattern::FoundShard;
use super::shard::{IndexCache, Located, Opened, Place};
use crate::memory::NoMemory;
use crate::store::{BufferSource, Object, StoreError};

/// What an index may take beside the bytes of its shard.
const SLACK_BYTES: u64 = 1 << 20;

/// Finds the index of a shard that is with a peer.
pub(super) fn locate(
    found: &FoundShard,
    shard: &dyn Object,
    cache: Option<&IndexCache>,
) -> Result<(Located, Opened), StoreError> {
    match copied_before(found, shard, cache) {
        Some(head) => Ok((Located { place: Place::Cache, head: Arc::new(head) }, Opened::Indexed)),
        None => copy(found, shard, cache),
    }
}

/// Copies the index that lies beside a shard, or lists the shard where there is none that fits.
pub(super) fn copy(
    found: &FoundShard,
    shard: &dyn Object,
    cache: Option<&IndexCache>,
) -> Result<(Located, Opened), StoreError> {
    let mut room = Bounded { bytes: Vec::new(), limit: shard.len().saturating_add(SLACK_BYTES) };
    let name = format!("{}{ENDING}", found.name);
    let beside = found.store.read(&name, &mut room).is_ok().then_some(room.bytes);
    let opened = if beside.is_some() { Opened::Replaced } else { Opened::Listed };
    match beside.map(|bytes| checked(found.store.address(&name), bytes, shard)).transpose()?.flatten() {
        Some(bytes) => Ok((Located::kept(shard, bytes, cache)?, Opened::Indexed)),
        None => Ok((Located::listed(shard, cache)?, opened)),
    }
}

fn copied_before(found: &FoundShard, shard: &dyn Object, cache: Option<&IndexCache>) -> Option<IndexHead> {
    let index = Place::Cache.open(found, Some(cache?)).ok()?;
    IndexHead::read(&*index).ok()?.filter(|head| head.is_exact(shard))
}

/// An index that lies beside its shard, made out to the shard as it is; none if it does not fit.
fn checked(address: String, bytes: Vec<u8>, shard: &dyn Object) -> Result<Option<Vec<u8>>, StoreError> {
    let object = Arc::new(MemoryObject::new(address, bytes));
    let Some(head) = IndexHead::read(&*object)? else { return Ok(None) };
    if head.freshness(shard)? == Freshness::Stale {
        return Ok(None);
    }
    let index = Index { object: Arc::clone(&object) as Arc<dyn Object>, head: Arc::new(head) };
    let fits = index.fits(shard).unwrap_or(false);
    Ok(fits.then(|| index.head.of_copy(shard, object.bytes())))
}

/// Room for an index of a size that is possible.
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
