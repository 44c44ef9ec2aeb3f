//! For tests and benchmarks of Feedline itself and of code built on it: generated pictures, streams to compare,
//! and the suites that every source, store and op passes.

mod conformance;
mod pictures;
mod stream;
mod volumes;

pub use conformance::{check_op, check_source, check_store, check_volume_op};
pub use pictures::{picture, write_pictures};
pub use stream::{collect, open, open_for, take};
pub use volumes::write_volumes;
