//! Data that is elsewhere, behind the interfaces of the core: object stores and storage servers as stores, and the
//! node of a machine as a feed. And what others may ask over HTTP: how a node, a storage server or a loader is doing.
#![forbid(unsafe_code)]

pub mod http;
pub mod loader;
pub mod node;
pub mod object;
mod remote_object;
pub mod storage;
pub mod tls;
pub mod wire;

use feedline_data::plan::Registry;

/// Makes the stores of this crate known.
pub fn register(registry: &mut Registry) {
    object::register(registry);
    storage::register(registry);
}
