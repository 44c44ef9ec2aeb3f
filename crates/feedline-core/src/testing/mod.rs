//! For tests and benchmarks of Feedline itself and of code built on it: generated pictures and streams to compare.

mod pictures;
mod stream;

pub use pictures::{picture, write_pictures};
pub use stream::{collect, open, take};
