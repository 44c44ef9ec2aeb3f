//! Where batches go: the iterator of a training process.

mod arrival_book;
mod cutter;
mod deliverer;
mod feed;
mod own;
mod shared;
mod stream;

pub use feed::{Feed, LocalFeed, Segment, SegmentMemory};
pub use own::{Iteration, Loader, Next};
/// How long whoever waits for samples waits before he looks whether he should end.
pub const STREAM_POLL: std::time::Duration = std::time::Duration::from_millis(100);

pub use deliverer::{Deliverer, Open};
pub use shared::{Connect, SharedLoader};
pub use stream::{Stream, StreamState};
