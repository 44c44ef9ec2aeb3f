//! The index of a shard: where each sample lies, so that opening reads a few hundred bytes and a sample is one read.
//!
//! ```text
//! magic 8 | version 4 | length of the head 4 | head (JSON) | checksum 8
//! one entry per sample, all of one length          label, and per field: data, width and height, record
//! keys and records                                 key and extensions of a sample; opaque bytes about its pictures
//! classes (JSON)                                   read once per data set
//! ```
//!
//! Numbers are little-endian. Each part has its own checksum, which depends on its place, and is looked at when the part is
//! read. Bytes come from outside: what is read is checked against the lengths of shard and index before it is used, so that
//! a forged index can name other bytes of the shard, but none outside it.

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

/// The ending of the name of a shard's index, behind that of the shard.
pub(crate) const ENDING: &str = ".index";
