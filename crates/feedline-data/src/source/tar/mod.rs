//! Tar shards in the way of WebDataset, ours and anybody's.
//!
//! In: patterns, folders or paths of shards. Out: samples made of the members that share a key, in the order of the shards'
//! names and within them. Every byte of a shard or an index may be hostile.
//!
//! - `pattern.rs` finds shards; `shards.rs` has them all, `shard.rs` is one of them, `copied.rs` the
//!   index of one that is with a peer
//! - `walk.rs` goes over the members of a tar file, `names.rs` says what a name means, `listing.rs` makes an index of both
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
