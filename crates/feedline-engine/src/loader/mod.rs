//! The consumer's side: epochs, iterations and states.
//!
//! A [`Loader`] gets its batches from a [`Deliverer`]: a run of this process, a node on this machine, or a `SegmentDeliverer`, which
//! cuts them out of shared segments. A [`GivenLoader`] prepares batches that a sampler outside the engine chooses.

mod arrival_recorder;
mod batch_mapper;
mod cutter;
mod deliverer;
mod feed;
mod given;
mod inspect;
mod progress;
mod segment_deliverer;
mod stream;
mod visits;

pub use batch_mapper::{BatchFunction, BatchPlace};
pub use deliverer::{Delivered, Deliverer, Open};
pub use feed::{Connect, Feed, LocalFeed, Segment, SegmentMemory};
pub use given::{ChosenBatch, GivenLoader};
pub use progress::{Iteration, Next};
pub use stream::Loader;
pub use visits::Visits;

/// Interval at which a blocked reader checks for cancellation.
pub const STREAM_POLL: std::time::Duration = std::time::Duration::from_millis(100);
