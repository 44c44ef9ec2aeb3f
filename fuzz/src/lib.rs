//! Feeds hostile bytes to every reader of Feedline.
//!
//! Each module is a target: `run` takes any bytes and panics if a promise is broken, and `seeds` returns valid inputs to start
//! with. Two drivers call them: libFuzzer, guided by coverage (`make fuzz`), and `tests/mutations.rs`, with a fixed number of
//! mutations of the seeds (`make test`).
//!
//! The promises: no panic, no overflow, memory within [`MAX_BYTES`], and those in the docs of the target.

pub mod costs;
pub mod cut;
pub mod header;
pub mod index_build;
pub mod index_read;
pub mod kept_sample;
pub mod plan;
pub mod progressive;
pub mod shard_index;
pub mod shelf;
pub mod state;
pub mod tar;
pub mod tiff;
pub mod trimmed;
pub mod volume;
pub mod wire;
pub mod worker_reply;

mod memory;
mod mutate;
mod pictures;
mod running;
mod shard;

use std::alloc::System;

use cap::Cap;
pub use mutate::Mutations;

/// Upper limit of memory. An allocation beyond it ends the process: a reader has trusted a length in its input.
pub const MAX_BYTES: usize = 256 << 20;

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, MAX_BYTES);

/// A reader under test.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, as in `fuzz_targets`.
    pub name: &'static str,
    /// Reads any bytes.
    pub run: fn(&[u8]),
    /// Valid inputs to start with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: [Target; 17] = [
    Target { name: "header", run: header::run, seeds: header::seeds },
    Target { name: "index_build", run: index_build::run, seeds: index_build::seeds },
    Target { name: "index_read", run: index_read::run, seeds: index_read::seeds },
    Target { name: "cut", run: cut::run, seeds: cut::seeds },
    Target { name: "progressive", run: progressive::run, seeds: progressive::seeds },
    Target { name: "trimmed", run: trimmed::run, seeds: trimmed::seeds },
    Target { name: "tiff", run: tiff::run, seeds: tiff::seeds },
    Target { name: "tar", run: tar::run, seeds: tar::seeds },
    Target { name: "shard_index", run: shard_index::run, seeds: shard_index::seeds },
    Target { name: "volume", run: volume::run, seeds: volume::seeds },
    Target { name: "wire", run: wire::run, seeds: wire::seeds },
    Target { name: "worker_reply", run: worker_reply::run, seeds: worker_reply::seeds },
    Target { name: "plan", run: plan::run, seeds: plan::seeds },
    Target { name: "state", run: state::run, seeds: state::seeds },
    Target { name: "costs", run: costs::run, seeds: costs::seeds },
    Target { name: "shelf", run: shelf::run, seeds: shelf::seeds },
    Target { name: "kept_sample", run: kept_sample::run, seeds: kept_sample::seeds },
];
