//! What plans can name in this process.

use std::path::PathBuf;

use feedline_data::plan::Registry;

use crate::map;

/// All ops, sources and stores of the engine, those over a network, and Python functions. Sources may keep things in the folder
/// `cache`.
pub(crate) fn registry(cache: Option<PathBuf>) -> Registry {
    let mut registry = Registry::core();
    feedline_net::register(&mut registry);
    registry.code_op(map::NAME, map::from_params);
    match cache {
        Some(folder) => registry.with_cache_folder(folder),
        None => registry,
    }
}
