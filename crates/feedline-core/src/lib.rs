//! The engine of Feedline.
//!
//! One idea: a prepared sample is a pure function of (plan, seed, epoch, sample id, occurrence), so any thread, process,
//! machine or moment may compute it, and the engine chooses whichever keeps the accelerator busy. The folders are the way
//! of the data:
//!
//! ```text
//! 1 plan -> 2 order -> 3 source -> 4 store -> 5 op ... op -> 6 batch -> 7 sink
//!                     (engine moves it; supply joins 3 and 4; cost predicts it, metrics counts it)
//! ```
//!
//! Not here, ever: Python, sockets, unsafe code, globals, environment variables.
#![forbid(unsafe_code)]

pub mod batch;
pub mod cache;
pub mod carousel;
pub mod cost;
pub mod cursor;
pub mod doctor;
pub mod engine;
pub mod error;
pub mod kept;
pub mod metrics;
pub mod offload;
pub mod op;
pub mod order;
pub mod pack;
pub mod partition;
pub mod plan;
pub mod private_files;
pub mod sink;
pub mod source;
pub mod store;
pub mod supply;
pub mod testing;
pub mod verify;
pub mod volume;

pub use batch::Batch;
pub use cursor::{Cursor, State};
pub use error::{Error, SampleFailure};
pub use plan::{Document, Plan, Registry};
pub use sink::{Loader, Machine, Next};
