//! The ops, sources and stores that plans can name in this process.

use std::path::PathBuf;

use feedline_data::plan::Registry;

use crate::map;

/// All ops, sources and stores of the engine and the network crate, and Python functions. Sources cache their listings in the
/// folder `cache`.
pub(crate) fn registry(cache: Option<PathBuf>) -> Registry {
    let mut registry = Registry::core();
    feedline_net::register(&mut registry);
    registry.code_op(map::NAME, map::from_params);
    match cache {
        Some(folder) => registry.with_cache_folder(folder),
        None => registry,
    }
}
