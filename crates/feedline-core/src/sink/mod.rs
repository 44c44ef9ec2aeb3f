//! Where batches go: the iterator of a training process.

mod arrival_book;
mod loader;

pub use loader::{Iteration, Loader, Machine, Next};
