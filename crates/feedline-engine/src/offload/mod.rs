//! Decides what is prepared near the storage.
//!
//! In: the cost of samples in each form, and the speeds of the link, both machines' CPUs and the consumer, all measured while a
//! plan runs. Out: the form in which each sample is requested. The first stage finds the bottleneck. Only if it is the link, the
//! second stage ranks the steps of all samples by bytes saved per CPU second of the server, and takes the best until the link is no
//! longer the bottleneck.
//!
//! - `models.rs` models the cost of forms by the stored size of a sample
//! - `rates.rs` is the first stage: the speed of each resource
//! - `steps.rs` is the second stage: what each form saves for a sample
//! - `decide.rs` chooses; `advisor.rs` keeps the measurements of a run; `report.rs` explains
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
