//! Where batches go: epochs, iterations and states of one consumer.
//!
//! [`Loader`] is the consumer's side. Its batches come from a [`Deliverer`]: a run of this process, a node on this machine, or a
//! rider, which cuts them out of segments that other jobs get too.

mod arrival_book;
mod cutter;
mod deliverer;
mod feed;
mod inspect;
mod progress;
mod rider;
mod stream;

pub use deliverer::{Delivered, Deliverer, Open};
pub use feed::{Connect, Feed, LocalFeed, Segment, SegmentMemory};
pub use progress::{Iteration, Next};
pub use stream::Loader;

/// Interval at which a blocked reader checks for cancellation.
pub const STREAM_POLL: std::time::Duration = std::time::Duration::from_millis(100);
