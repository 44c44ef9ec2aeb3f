//! For tests and benchmarks: generated pictures and volumes, and plans from text.

mod pictures;
mod plans;
mod volumes;

pub use pictures::{picture, write_pictures};
pub use plans::{open, open_for};
pub use volumes::write_volumes;
