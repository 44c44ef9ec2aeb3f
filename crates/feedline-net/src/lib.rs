//! Remote data behind the interfaces of the engine: object stores and storage servers as stores, the node of a machine as a feed,
//! worker processes as makers of samples.
//! Also HTTP pages about nodes, storage servers and loaders.
#![forbid(unsafe_code)]

mod descriptors;
pub mod http;
pub mod loader;
pub mod node;
pub mod object;
mod remote_object;
pub mod storage;
pub mod tls;
pub mod wire;
pub mod worker;

use feedline_data::plan::Registry;

/// Registers the stores of this crate.
pub fn register(registry: &mut Registry) {
    object::register(registry);
    storage::register(registry);
}
