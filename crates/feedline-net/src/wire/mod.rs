//! The protocol between a storage server and its clients.
//!
//! A connection is a sequence of [`Frame`]s in each direction. A frame has a message, and bytes if the message refers to some.
//! Requests are numbered. Replies carry the number of their request and arrive in any order.
//!
//! Always true: data from the other side is checked (length, checksum, form) before use. Waiting for the rest of a frame is
//! limited.

mod error;
mod frame;
mod message;
mod paced;

pub use error::WireError;
pub use frame::{Arrival, Frame, FrameHead, Sequence};
pub(crate) use frame::{MAX_REPLY_BYTES, MAX_REQUEST_BYTES};
pub(crate) use message::shortened;
pub use message::{Failure, PROTOCOL, Reply, Request, engine_version};
pub(crate) use paced::{LONGEST_GAP, Paced};
