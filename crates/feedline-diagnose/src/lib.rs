//! Answers questions about a job: its bottleneck, what would help, the costs of its samples, and whether the laws hold.
//!
//! In: a plan, and a trainer or a simulated one. Out: a diagnosis, a cost report, or the first counterexample to a law. All of
//! this runs the engine from outside, like a user. The engine does not depend on it.
#![forbid(unsafe_code)]

mod cost_report;
pub mod doctor;
pub mod verify;

pub use cost_report::{Bar, CostReport, SlowSample};
