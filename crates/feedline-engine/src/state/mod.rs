//! The place of a consumer in its stream, and its saved form.
//!
//! - `cursor.rs` is the place in a stream that one consumer has alone
//! - `received.rs` is either of the two
//! - `job_progress.rs` is the progress of a job through shared segments

mod cursor;
mod job_progress;
mod received;

pub use cursor::{Cursor, Delivery, State, StateError};
pub use job_progress::{JobProgress, JobProgressError, JobProgressState, SegmentRound};
pub use received::{Received, SavedState, SharedJobProgress};
