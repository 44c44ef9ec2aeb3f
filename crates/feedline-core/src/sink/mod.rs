//! Where batches go: the iterator of a training process.

mod loader;

pub use loader::{Iteration, Loader, Machine, Next};
