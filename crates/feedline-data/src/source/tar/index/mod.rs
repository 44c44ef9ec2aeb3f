//! The index of a shard: the place of each sample. With it, opening reads a few hundred bytes, and a sample is one read.
//!
//! ```text
//! magic 8 | version 4 | length of the head 4 | head (JSON) | checksum 8
//! one entry per sample, all of one length          label, and per field: data, width and height, record
//! keys and records                                 key and extensions of a sample; opaque bytes about its pictures
//! classes (JSON)                                   read once per data set
//! ```
//!
//! Numbers are little-endian. Each part has its own checksum, which depends on its place and is checked when the part is read. The
//! bytes may be hostile: they are checked against the lengths of shard and index before use. So a forged index can name other bytes
//! of the shard, but none outside it.

mod build;
mod entry;
mod forge;
mod head;
mod read;

pub(crate) use build::{Builder, MemberFacts, SampleFacts};
pub(crate) use entry::IndexEntry;
pub(crate) use forge::forged;
pub(crate) use head::{Freshness, IndexHead};
pub(crate) use read::{Index, IndexError};

/// The ending that is appended to the name of a shard.
pub(crate) const ENDING: &str = ".index";
