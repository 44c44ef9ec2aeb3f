//! Plans and everything they consist of.
//!
//! In: the user's input. Out: a checked [`plan::Plan`] and its parts: where bytes are stored, what is done to them, what a batch
//! looks like. Nothing here starts a thread that outlives a call, keeps a queue or knows a trainer. `feedline-engine` does. Each
//! module depends only on those before it:
//!
//! ```text
//! dtype, cut, failure, cpu_time, private_files, spec -> memory -> store -> volume -> batch -> source -> op -> cost -> plan -> pack
//! ```
//!
//! Not here, ever: Python, sockets, unsafe code, globals, environment variables.
#![forbid(unsafe_code)]

pub mod batch;
pub mod cost;
pub mod cpu_time;
pub mod cut;
pub mod dtype;
pub mod failure;
pub mod memory;
pub mod op;
pub mod pack;
pub mod plan;
pub mod private_files;
pub mod source;
pub mod spec;
pub mod store;
pub mod testing;
pub mod volume;
