//! Packs a source into tar shards with indexes.
//!
//! In: a source of stored files, options, a folder. Out: `shard-NNNNNN.tar` in WebDataset's format with an index next to each, and
//! a [`Summary`]. Samples come in source order, with their members as stored or as plain pixels.
//!
//! ```text
//! workers: read, check, index, convert (picture.rs, sample.rs) -> queue.rs, in order -> writer: key.rs, shard.rs, journal.rs
//! ```
//!
//! Always true: a file `shard-NNNNNN.tar` is complete and has its index. The same source and options give the same bytes, for any
//! number of workers and interruptions. Memory is bounded.

mod journal;
mod key;
mod options;
mod picture;
mod queue;
mod run;
mod sample;
mod shard;
mod summary;

pub use options::{Content, Damaged, Options};
pub use run::{Watch, pack};
pub use summary::{DamagedPicture, PackError, Summary};
