//! What is prepared near the storage, and why.
//!
//! In: what samples take in each form, how fast the link, both machines' processors and the consumer are, all measured while a
//! plan runs. Out: the form in which each sample is asked for. First stage: what bounds the job; only where that is the link,
//! second stage: for each sample, bytes saved per second of the server's processor, and the best of all samples first until
//! the link is not the bottleneck.
//!
//! - `models.rs` is what forms take, by the stored size of a sample
//! - `rates.rs` is how fast everything is: the first stage, from which `cost::Times` are made
//! - `steps.rs` is what a sample gains by each form: the second stage
//! - `decide.rs` chooses; `advisor.rs` keeps all this for a run; `report.rs` tells it
//!
//! Always true: a decision changes where work is done, never a byte of a sample (law 1).

mod advisor;
mod decide;
mod models;
mod rates;
mod report;
mod steps;

pub(crate) use advisor::Advisor;
pub use report::{Candidate, OffloadReport, SamplePoint, Throughput};
