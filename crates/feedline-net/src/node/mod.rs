//! The node of a machine and the jobs that attach to it.
//!
//! `feedline node` produces samples once for all jobs with the same values: it holds a carousel for each plan, jobs attach over
//! a Unix socket and read segments in shared memory. The ranks of one job get their shares from it, batch by batch. Jobs and
//! node are processes of one user.
//!
//! - `message.rs` is what they say, `channel.rs` how it is carried, descriptors included
//! - `place.rs` is the socket in the file system: one node at a time, for its owner alone
//! - `server.rs` is the node, `session.rs` one job as it sees it, `serving.rs` what that job gets
//! - `runs.rs` is what it produces, for as long as there are jobs for it
//! - `meter.rs` counts what a job does, `stats.rs` is the node in numbers, `page.rs` the same in a browser
//! - `attached.rs` is the node as a job sees it: its segments in `feed.rs`, the batches of a rank in `batches.rs`
//! - `start.rs` starts a node where there is none
//! - `hostile.rs` is a job that speaks the protocol to do harm, for tests

mod attached;
mod batches;
mod channel;
mod feed;
#[cfg(test)]
mod hostile;
mod message;
mod meter;
mod page;
mod runs;
mod server;
mod serving;
mod session;
mod socket;
mod start;
mod stats;

pub use attached::AttachError;
pub use batches::NodeBatches;
pub use feed::NodeFeed;
pub use page::PALETTE;
pub use runs::RunStats;
pub use server::{Node, NodeConfig, NodeError, look};
pub use socket::{NodeSocket, SocketError};
pub use start::attach_or_start;
pub use stats::{JobStats, NodeStats};
