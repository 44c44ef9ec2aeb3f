//! Where a consumer stands, and how that is saved.
//!
//! - `cursor.rs` is a place in a stream of one's own
//! - `received.rs` is either of them
//! - `ride.rs` is one job's way through segments that others get too

mod cursor;
mod received;
mod ride;

pub use cursor::{Cursor, Delivery, State, StateError};
pub use received::{Received, SavedState, SharedRide};
pub use ride::{Portion, Ride, RideError, RideState};
