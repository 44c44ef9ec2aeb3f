//! Checks the laws of the design on a plan: the user's own data, ops and machine.
//!
//! In: a plan, how much of it to look at. Out: a [`Verification`], which says of each law whether it holds here, or the first
//! [`Counterexample`]. The plan is run by the ordinary loader, in several configurations that must not differ; what they
//! deliver is kept as hashes (`stream.rs`) and compared. What is *not* done here: anything about memory and hanging (laws 5 and
//! 7), which single runs cannot show.
//!
//! Always true: a bad sample is a finding and not a broken law; an op or a source that gives other bytes each time is named.

mod compare;
mod content;
mod definition;
mod displacement;
mod failures;
mod fusion;
mod laws;
mod offloading;
mod once;
mod order;
mod probe;
mod ranks;
mod report;
mod resume;
mod resume_arrival;
mod stream;
mod subject;
mod values;

pub use laws::verify;
pub use report::{Counterexample, Finding, LawReport, Verdict, Verification};
pub use subject::{Extent, VerifyError, Watch};
