//! The consumer's side: epochs, iterations and states.
//!
//! A [`Loader`] gets its batches from a [`Deliverer`]: a run of this process, a node on this machine, or a `SegmentDeliverer`, which
//! cuts them out of shared segments.

mod arrival_recorder;
mod cutter;
mod deliverer;
mod feed;
mod inspect;
mod progress;
mod segment_deliverer;
mod stream;

pub use deliverer::{Delivered, Deliverer, Open};
pub use feed::{Connect, Feed, LocalFeed, Segment, SegmentMemory};
pub use progress::{Iteration, Next};
pub use stream::Loader;

/// Interval at which a blocked reader checks for cancellation.
pub const STREAM_POLL: std::time::Duration = std::time::Duration::from_millis(100);
