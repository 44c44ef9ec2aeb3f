//! For tests and benchmarks: collected streams, and the conformance suites of sources, stores and ops.

mod conformance;
mod stream;

pub use conformance::{check_op, check_source, check_store, check_volume_op};
pub use stream::{collect, take};
