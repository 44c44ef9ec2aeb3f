//! What people want to know about a job: what bounds it, what would help, what samples cost, and whether the promises hold.
//!
//! In: a plan, and a trainer or what it takes. Out: a diagnosis, a report of costs, or the first counterexample to a law. Each
//! runs the engine from outside, as a user would; nothing in the engine knows of it.
#![forbid(unsafe_code)]

mod cost_report;
pub mod doctor;
pub mod verify;

pub use cost_report::{Bar, CostReport, SlowSample};
