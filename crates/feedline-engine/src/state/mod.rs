//! Where a consumer stands, and how that is saved.
//!
//! - `cursor.rs` is a place in a stream of one's own
//! - `received.rs` is either of them
//! - `ride.rs` is one job's way through segments that others get too

mod cursor;
mod job_progress;
mod received;

pub use cursor::{Cursor, Delivery, State, StateError};
pub use job_progress::{JobProgress, JobProgressState, RideError, SegmentRound};
pub use received::{Received, SavedState, SharedJobProgress};
