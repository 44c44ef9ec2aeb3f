//! For tests and benchmarks of Feedline itself and of code built on it: streams to compare, and the suites that every source,
//! store and op passes.

mod conformance;
mod stream;

pub use conformance::{check_op, check_source, check_store, check_volume_op};
pub use stream::{collect, take};
