//! Data that is elsewhere, behind the interfaces of the core: object stores as stores.
#![forbid(unsafe_code)]

pub mod object;

use feedline_core::Registry;

/// Makes the stores of this crate known.
pub fn register(registry: &mut Registry) {
    object::register(registry);
}
