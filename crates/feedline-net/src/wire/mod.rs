//! What a storage server and its clients say to each other.
//!
//! A connection is a sequence of [`Frame`]s in each direction. A frame has a message, and bytes beside it where the message
//! speaks of some. Requests have numbers; replies carry the number of their request and come in any order.
//!
//! Always true: what comes from the other side is checked (length, checksum, form) before it is used; nobody waits for the rest of
//! a frame for long.

mod error;
mod frame;
mod message;
mod paced;

pub use error::WireError;
pub use frame::{Arrival, Frame, FrameHead, Sequence};
pub(crate) use frame::{MOST_REPLY_BYTES, MOST_REQUEST_BYTES};
pub(crate) use message::shortened;
pub use message::{Failure, PROTOCOL, Reply, Request, engine_version};
pub(crate) use paced::{LONGEST_GAP, Paced};
