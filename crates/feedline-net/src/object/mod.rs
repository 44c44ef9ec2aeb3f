//! Object stores: objects by URL.

use feedline_core::Registry;

/// Makes the schemes of object stores known.
pub fn register(_registry: &mut Registry) {}
