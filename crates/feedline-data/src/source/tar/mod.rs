//! Tar shards in WebDataset's format, from any tool.
//!
//! In: patterns, folders or paths of shards. Out: samples, in the order of the shards' addresses and of their places in the shards.
//! Consecutive members with the same key form a sample. Every byte of a shard or an index may be hostile.
//!
//! - `source.rs` is the source; `pattern.rs` finds shards; `shards.rs` holds all of them, `shard.rs` is one
//! - `index/` is the index file; `copied.rs` copies the index of a remote shard; `memory.rs` is an index without a file
//! - `walk.rs` lists the members of a tar file, `names.rs` interprets their names, `listing.rs` builds an index from both
//! - `identity.rs` hashes a sequence part by part

mod copied;
mod identity;
pub(crate) mod index;
mod listing;
mod memory;
pub(crate) mod names;
mod pattern;
mod shard;
mod shards;
mod source;
pub(crate) mod walk;

pub(crate) use pattern::{is_plain_shard, names_shards};
pub use source::TarSource;
