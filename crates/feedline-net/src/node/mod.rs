//! The node of a machine and the jobs that attach to it.
//!
//! `feedline node` produces samples once for all jobs with the same values. It has a carousel for each plan. Jobs attach over a
//! Unix socket and read segments in shared memory. The ranks of one job get their shares from it, batch by batch. Jobs and node
//! belong to one user.
//!
//! - `message.rs` defines the messages; `channel.rs` carries them, with descriptors
//! - `socket.rs` is the socket in the file system: one node at a time, accessible to its owner only
//! - `server.rs` is the node; `session.rs` is one job's connection; `serving.rs` is what that job receives
//! - `runs.rs` are the productions, which last as long as they have jobs
//! - `meter.rs` are the counters of a job; `stats.rs` the metrics of the node; `page.rs` its page in a browser
//! - `attached.rs` is a job's side: segments in `feed.rs`, batches of a rank in `batches.rs`
//! - `start.rs` starts a node if there is none
//! - `hostile.rs` is a hostile job, for tests

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
pub use server::{Node, NodeConfig, NodeError, fetch_stats};
pub use socket::{NodeSocket, SocketError};
pub use start::attach_or_start;
pub use stats::{JobStats, NodeStats};
