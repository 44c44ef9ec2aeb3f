//! For tests and benchmarks of Feedline itself and of code built on it: generated pictures and volumes, and plans from text.

mod pictures;
mod plans;
mod volumes;

pub use pictures::{picture, write_pictures};
pub use plans::{open, open_for};
pub use volumes::write_volumes;
