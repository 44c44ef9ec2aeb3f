//! Tar shards in WebDataset's format, from any tool.
//!
//! In: patterns, folders or paths of shards. Out: samples, formed by members with the same key, in the order of the shards' names
//! and within them. Every byte of a shard or an index may be hostile.
//!
//! - `pattern.rs` finds shards; `shards.rs` holds all of them, `shard.rs` is one; `copied.rs` copies the index of a remote one
//! - `walk.rs` lists the members of a tar file, `names.rs` interprets their names, `listing.rs` builds an index from both
//! - `index/` is the index file; `identity.rs` hashes a sequence part by part

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
