//! Checks the laws of the design on a plan: the user's own data, ops and machine.
//!
//! In: a plan, and how much of it to check. Out: a [`Verification`]: for each law a pass, or the first [`Counterexample`]. The
//! ordinary loader runs the plan in several configurations, which must deliver the same stream. Their batches are kept as hashes
//! (`stream.rs`) and compared. Laws 5 and 7, about memory and hanging, are *not* checked here, because single runs cannot show
//! them.
//!
//! Always true: a bad sample is a finding, not a broken law. An op or source that is not deterministic is named.

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
