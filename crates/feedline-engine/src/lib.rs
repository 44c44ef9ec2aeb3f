//! Runs plans.
//!
//! One idea: a prepared sample is a pure function of (plan, seed, epoch, sample index, occurrence), so any thread, process,
//! machine or moment may compute it, and the engine chooses whichever keeps the accelerator busy. In: a
//! [`feedline_data::plan::Plan`]. Out: batches. The modules depend on those before them only:
//!
//! ```text
//! slot_ref -> state, error, metrics, cache -> machine -> offload -> supply -> run -> carousel, partition -> loader
//! ```
//!
//! Not here, ever: Python, sockets, unsafe code, globals, environment variables.
#![forbid(unsafe_code)]

pub mod cache;
pub mod carousel;
pub mod error;
pub mod loader;
pub mod machine;
pub mod metrics;
pub mod offload;
pub mod partition;
pub mod run;
pub mod shared_by_key;
pub mod slot_ref;
pub mod state;
pub mod supply;
pub mod testing;
mod threads;
