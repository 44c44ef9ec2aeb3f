//! The storage server and its clients.
//!
//! `feedline storage` serves the files below a root, next to the data. For its clients it is a store: `feedline://host:port/folder`
//! replaces a path. Names are relative to the root, so samples have the same ids, labels and keys as locally.

mod allowance;
mod answer;
mod beneath;
mod confined;
mod connection;
mod cpu;
mod fair;
mod greeting;
mod half_open;
mod link;
mod listing;
mod peer;
mod permits;
mod plans;
mod range;
mod remote;
mod root;
mod server;
mod session;
mod tally;
mod throttle;
mod token;

use std::sync::Arc;

use feedline_data::plan::Registry;
use feedline_data::store::Store;

pub use link::{Link, LinkCounts, LinkDone, LinkError, LinkTerms, LinkTraffic, Pending};
pub use listing::Listing;
pub use remote::RemoteStore;
pub use root::Root;
pub use server::{REPLY_MEMORY_BYTES, Server, ServerConfig, ServerError};
pub use tally::ServerStats;
pub use token::Token;

/// The scheme of URLs of storage servers.
pub const SCHEME: &str = "feedline";
/// The scheme of servers with TLS.
pub const SECURE_SCHEME: &str = "feedlines";
/// Both, as clients name what a server has.
const SCHEMES: [&str; 2] = [SCHEME, SECURE_SCHEME];

/// Registers the schemes.
pub fn register(registry: &mut Registry) {
    for scheme in SCHEMES {
        registry.store(scheme, |url| {
            let store: Arc<dyn Store> = Arc::new(RemoteStore::open(url)?);
            Ok(store)
        });
    }
}
