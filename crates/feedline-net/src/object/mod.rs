//! Object stores: `s3://`, `gs://`, `az://`, `http://` and `https://`, through the `object_store` crate.
//!
//! In: a URL. Out: a [`feedline_data::store::Store`] with many concurrent range requests. Objects are only read, never written.
//! Credentials, regions and endpoints come from the environment variables of each provider.
//!
//! - `client.rs` creates the client of a provider; `profile.rs` reads the files of the AWS command line; `counting.rs` counts
//!   traffic
//! - `peer.rs` is a bucket or server with its client and threads; `bucket.rs` is the store of a folder in it
//! - `problem.rs` explains errors and what to do

mod bucket;
mod client;
mod counting;
mod peer;
mod problem;
mod profile;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use feedline_data::plan::Registry;
use feedline_data::store::{Store, StoreError};
use feedline_memory::Mutex;

use self::bucket::Bucket;
use self::client::Scheme;
use self::peer::Peer;

/// How long requests are repeated if a peer does not answer correctly.
pub const RETRY_TIME: Duration = Duration::from_secs(30);

/// Registers the schemes of object stores.
pub fn register(registry: &mut Registry) {
    register_patient(registry, RETRY_TIME);
}

/// Registers them with another time limit for retries.
pub fn register_patient(registry: &mut Registry, retry_time: Duration) {
    let peers = Arc::new(Peers::new(retry_time));
    for (name, scheme) in Scheme::ALL {
        let peers = Arc::clone(&peers);
        registry.store(name, move |url| {
            let store: Arc<dyn Store> = Arc::new(peers.bucket(url, scheme)?);
            Ok(store)
        });
    }
}

/// The peers in use. All shards in one bucket share a client, however many patterns name them.
#[derive(Debug)]
pub(crate) struct Peers {
    retry_time: Duration,
    open: Mutex<HashMap<String, Weak<Peer>>>,
}

impl Peers {
    pub(crate) fn new(retry_time: Duration) -> Self {
        Self { retry_time, open: Mutex::default() }
    }

    /// The folder of a URL.
    pub(crate) fn open(&self, url: &str) -> Result<Arc<dyn Store>, StoreError> {
        let scheme = url.split_once("://").and_then(|(name, _)| Scheme::ALL.into_iter().find(|known| known.0 == name));
        let unknown =
            || StoreError::Content { path: url.to_owned(), problem: "is no URL of an object store".to_owned() };
        let (_, scheme) = scheme.ok_or_else(unknown)?;
        Ok(Arc::new(self.bucket(url, scheme)?))
    }

    fn bucket(&self, url: &str, scheme: Scheme) -> Result<Bucket, StoreError> {
        let after = url.find("://").map_or(0, |colon| colon + 3);
        let host_end = url[after..].find('/').map_or(url.len(), |slash| after + slash);
        let (root, folder) = (&url[..host_end], url[host_end..].trim_matches('/'));
        if host_end == after {
            let problem = format!("names no {}", scheme.what());
            return Err(StoreError::Content { path: url.to_owned(), problem });
        }
        // Locked while a client is created, so that two patterns of one bucket do not create two. Creating one sends nothing.
        let mut open = self.open.lock();
        let peer = match open.get(root).and_then(Weak::upgrade) {
            Some(peer) => peer,
            None => Arc::new(Peer::open(root, scheme, self.retry_time)?),
        };
        open.insert(root.to_owned(), Arc::downgrade(&peer));
        Bucket::new(peer, folder)
    }
}
